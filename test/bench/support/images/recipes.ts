/** What the images of the benchmark consist of, and the real work that is done in each. */

export interface ImageRecipe {
  readonly name: string;
  /** Debian packages over the base. */
  readonly packages: readonly string[];
  /** Debian source packages, unpacked below /src. */
  readonly sources: readonly string[];
  /** Shell text that builds or tests something, offline, and fails if that fails. */
  readonly work: string;
}

export const suite = "bookworm";

export const imageRecipes: readonly ImageRecipe[] = [
  {
    name: "c",
    packages: [
      "gcc",
      "make",
      "libc6-dev",
      "autoconf",
      "automake",
      "libtool",
      "pkg-config",
      "cmake",
      "gdb",
      "libssl-dev",
      "libcurl4-openssl-dev",
      "libicu-dev",
      "libboost-dev",
      "libpython3-dev",
    ],
    sources: ["zlib"],
    work: "cd /src/zlib-* && ./configure --static > /dev/null && make -j2 > /dev/null && make test",
  },
  {
    name: "python",
    packages: [
      "python3-numpy",
      "python3-scipy",
      "python3-pandas",
      "python3-matplotlib",
      "python3-sympy",
      "python3-sklearn",
      "python3-pytest",
      "python3-markupsafe",
    ],
    sources: ["jinja2"],
    work:
      "cd /src/[Jj]inja2-* && PYTHONPATH=src python3 -m pytest -q -p no:cacheprovider tests/test_api.py tests/test_filters.py tests/test_inheritance.py && " +
      "python3 -c 'import numpy, pandas, scipy.linalg; print(pandas.DataFrame(scipy.linalg.inv(numpy.eye(64))).describe())'",
  },
  {
    name: "go",
    packages: ["golang-go", "golang-golang-x-tools-dev", "golang-github-stretchr-testify-dev"],
    sources: [],
    work: "export HOME=/tmp GOFLAGS=-vet=off GO111MODULE=off && cd /usr/lib/go/src && go test -count=1 container/list container/ring text/tabwriter",
  },
  {
    name: "java",
    packages: ["openjdk-17-jdk-headless", "openjdk-17-source", "junit4", "ant", "maven"],
    sources: [],
    work:
      "mkdir /tmp/src && cd /tmp/src && jar xf $(find /usr/lib/jvm -name src.zip -type f | head -n 1) java.logging && " +
      "javac -nowarn -d /tmp/out --patch-module java.logging=java.logging $(find java.logging -name '*.java' ! -name module-info.java) && " +
      "test -s /tmp/out/java/util/logging/Logger.class",
  },
];

/** A tree of a gigabyte of which each task reads a little: the kernel's sources. */
export const workspaceRecipe = {
  /** Debian package that holds the archive. */
  package: "linux-source-6.1",
  packages: ["gcc", "make", "libc6-dev", "flex", "bison", "bc"],
  /** Of the archive in its layer. */
  unpack: "tar -C / -xzf /workspace.tar.gz",
  work: "cd /work/linux && make -s tinyconfig > /dev/null 2>&1 && make -s lib/sort.o",
} as const;
