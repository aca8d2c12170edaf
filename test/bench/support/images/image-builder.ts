/** Builds the benchmark's images once: a Debian base that all share, and over it the packages and sources of each. */
import { existsSync } from "node:fs";
import { mkdir, readFile, rename, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { readAptConfiguration } from "../../../../src/daemon/layers/sources/apt-sources.ts";
import { debianSource } from "../../../../src/daemon/layers/sources/debian.ts";
import { runProgram } from "../../../../src/daemon/resources/program.ts";
import { type OciLayer, packLayer, writeOciLayout } from "./oci-layout.ts";
import { suite } from "./recipes.ts";

/** In a mount namespace of its own, so that nothing stays mounted however it ends. */
const installScript = `
dir=$1 lower=$2 packages=$3 sources=$4 extra=$5
mkdir -p "$dir/upper" "$dir/overlay-work" "$dir/root"
mount -t overlay overlay -o "lowerdir=$lower,upperdir=$dir/upper,workdir=$dir/overlay-work" "$dir/root"
root=$dir/root
mkdir -p "$root/run/apt"
mount -t tmpfs tmpfs "$root/run"
mkdir -p "$root/run/apt/lists/partial" "$root/run/apt/cache/archives/partial"
cp "$dir/sources.list" "$dir/apt.conf" "$root/run/apt/"
mount --bind /etc/resolv.conf "$root/etc/resolv.conf"
# the base has no manuals, and Java's packages make links there
mkdir -p "$root/usr/share/man/man1"
mount -t proc proc "$root/proc"
mount --bind /dev "$root/dev"
export APT_CONFIG=/run/apt/apt.conf DEBIAN_FRONTEND=noninteractive LC_ALL=C HOME=/root
chroot "$root" apt-get -qq update
[ -z "$packages" ] || chroot "$root" apt-get -qq -y --no-install-recommends install $packages
if [ -n "$sources" ]; then
  mkdir -p "$root/src"
  chroot "$root" sh -c "cd /src && apt-get -qq --download-only source $sources"
  # dpkg-source is not in every image
  for archive in "$root"/src/*.orig.tar.*; do tar -C "$root/src" --no-same-owner -xf "$archive"; done
  rm -f "$root"/src/*.dsc "$root"/src/*.tar.* "$root"/src/*.asc
fi
[ -z "$extra" ] || chroot "$root" sh -euc "$extra"
rm -rf "$root"/var/cache/apt/*.bin "$root"/var/cache/debconf/*-old "$root"/var/log/*.log "$root"/var/log/apt
`;

export class ImageBuilder {
  readonly #directory: string;
  readonly #say: (message: string) => void;

  /** @param directory keeps what was built for the next run */
  constructor(directory: string, say: (message: string) => void) {
    this.#directory = directory;
    this.#say = say;
  }

  /** The tree of the base. */
  async base(): Promise<string> {
    return this.#once("base", async (into) => {
      await debianSource(suite).prepare(join(into, "root"), {});
    }).then((directory) => join(directory, "root"));
  }

  /** The upper directory of packages and sources over the base. @param extra shell text, run in it at the end */
  async upper(
    name: string,
    packages: readonly string[],
    sources: readonly string[] = [],
    extra = "",
  ): Promise<string> {
    const lower = await this.base();
    const directory = await this.#once(`tree-${name}`, async (into) => {
      const apt = await readAptConfiguration(suite);
      const lines = apt.sources.flatMap((line) => [line, line.replace(/^deb /, "deb-src ")]);
      await writeFile(join(into, "sources.list"), `${lines.join("\n")}\n`);
      const settings = [
        ...apt.settings,
        'Dir::Etc::sourcelist "/run/apt/sources.list"',
        'Dir::Etc::sourceparts "/dev/null"',
        'Dir::State::lists "/run/apt/lists"',
        'Dir::Cache::archives "/run/apt/cache/archives"',
        'APT::Sandbox::User "root"',
        'Acquire::Languages "none"',
        'DPkg::Options:: "--force-unsafe-io"',
      ];
      await writeFile(join(into, "apt.conf"), settings.map((setting) => `${setting};\n`).join(""));
      const script = ["bash", "-euc", installScript, "install", into, lower];
      await runProgram(
        "unshare",
        ["--mount", "--propagation=private", ...script, packages.join(" "), sources.join(" "), extra],
        { discardOutput: true },
      );
    });
    return join(directory, "upper");
  }

  /** An OCI layout of the base and what lies over it. */
  async ociLayout(name: string, upper: string | undefined): Promise<string> {
    const base = await this.#layer("base", await this.base());
    const layers = upper === undefined ? [base] : [base, await this.#layer(name, upper)];
    return this.#once(`oci-${name}`, (into) => writeOciLayout(into, layers));
  }

  /** A file or directory that is made once. */
  async made(name: string, make: (into: string) => Promise<void>): Promise<string> {
    return this.#once(name, make);
  }

  async #layer(name: string, tree: string): Promise<OciLayer> {
    const directory = await this.#once(`layer-${name}`, async (into) => {
      const layer = await packLayer(tree, join(into, "layer.tar.gz"));
      await writeFile(join(into, "layer.json"), JSON.stringify(layer));
    });
    const layer = JSON.parse(await readFile(join(directory, "layer.json"), "utf8")) as OciLayer;
    return { ...layer, path: join(directory, "layer.tar.gz") };
  }

  async #once(name: string, make: (into: string) => Promise<void>): Promise<string> {
    const path = join(this.#directory, name);
    if (existsSync(path)) return path;
    this.#say(`making ${name}`);
    const part = `${path}.part`;
    await rm(part, { recursive: true, force: true });
    await mkdir(part, { recursive: true });
    await make(part);
    await rename(part, path);
    return path;
  }
}
