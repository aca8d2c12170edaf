import { resolve } from "node:path";
import { DSecError } from "../protocol/errors.ts";
import { configPath, readConfigFile } from "../sdk/config.ts";
import type { ConfigFile, Connection, ConnectionKey } from "../sdk/config.ts";
import type { Settings } from "../sdk/settings.ts";
import { writeConfigFile } from "./config-file.ts";
import { formatsFrom, listingFormats } from "./format.ts";
import { note } from "./io.ts";
import type { Io } from "./io.ts";
import { text } from "./option.ts";
import { done, listingOf } from "./outcome.ts";
import type { View } from "./outcome.ts";
import { defined } from "./sandbox-options.ts";
import { defineVerb } from "./verb.ts";
import type { VerbGroup } from "./verb.ts";

interface ContextRow extends Connection {
  readonly name: string;
  readonly current: boolean;
}

const contextView: View<ContextRow> = {
  columns: [
    { title: "CURRENT", value: ({ current }) => (current ? "*" : ""), tone: () => "good" },
    { title: "NAME", value: ({ name }) => name },
    { title: "ADDRESS", value: ({ address }) => address ?? "" },
    { title: "TOKEN FILE", wide: true, value: (row) => row["token-file"] ?? "" },
    { title: "CA FILE", wide: true, value: (row) => row["ca-file"] ?? "" },
    { title: "DATA DIR", wide: true, value: (row) => row["data-dir"] ?? "" },
    { title: "RUN DIR", wide: true, value: (row) => row["run-dir"] ?? "" },
    { title: "INSTANCE", wide: true, value: ({ instance }) => instance ?? "" },
  ],
  name: ({ name }) => name,
};

const getContexts = defineVerb({
  options: {},
  formats: listingFormats,
  run: async ({ io }) => {
    const config = await readFor(io);
    const rows = Object.entries(config.contexts).map(([name, connection]) => ({
      name,
      current: name === config.currentContext,
      ...connection,
    }));
    return { type: "listing", listing: listingOf(contextView, rows) };
  },
});

const currentContext = defineVerb({
  options: {},
  run: async ({ io }) => {
    const { currentContext: name, path } = await readFor(io);
    if (name === undefined) throw new DSecError("not_found", `${path} sets no current context`);
    return { type: "text", text: `${name}\n` };
  },
});

const useContext = defineVerb({
  operands: "<name>",
  options: {},
  run: async ({ io }, _, [name = ""]) => {
    const config = await readFor(io);
    needContext(config, name);
    await writeConfigFile({ ...config, currentContext: name });
    note(io, `the current context is ${name}`);
    return done;
  },
});

const setContext = defineVerb({
  description:
    "The settings are those given by --address, --token-file, --ca-file, --data-dir, --run-dir and --instance;\n" +
    "what is not given stays as it is.",
  operands: "<name>",
  examples: [
    "dsec config set-context lab --address https://lab.example:7443 --token-file ~/.config/dsec/lab",
  ],
  options: {
    address: text("--address <address>", "unix:/path, http://127.0.0.1:port or https://host:port"),
    "token-file": text("--token-file <file>", "file with the bearer token"),
    "ca-file": text("--ca-file <file>", "certificate authority of an https address, PEM"),
    "data-dir": text("--data-dir <dir>", "data of a local fleet"),
    "run-dir": text("--run-dir <dir>", "sockets and mounts of a local fleet"),
    instance: text("--instance <name>", "name of a local fleet's cgroups and tables"),
  },
  run: async ({ io }, options, [name = ""]) => {
    const config = await readFor(io);
    const given = defined({ ...options, ...absolutePaths(options) });
    const known = Object.hasOwn(config.contexts, name);
    const contexts = { ...config.contexts, [name]: { ...config.contexts[name], ...given } };
    await writeConfigFile({ ...config, contexts });
    note(io, `context ${name} ${known ? "changed" : "made"}`);
    return done;
  },
});

const deleteContext = defineVerb({
  operands: "<name>",
  options: {},
  run: async ({ io }, _, [name = ""]) => {
    const config = await readFor(io);
    needContext(config, name);
    const { [name]: __, ...contexts } = config.contexts;
    const currentContext = config.currentContext === name ? undefined : config.currentContext;
    await writeConfigFile({ ...config, contexts, currentContext });
    note(io, `context ${name} deleted`);
    return done;
  },
});

const settingsView: View<Omit<Settings, "isTokenFileNamed">> = {
  columns: [
    { title: "CONTEXT", value: ({ context }) => context ?? "" },
    { title: "ADDRESS", value: ({ address }) => address },
    { title: "TOKEN FILE", value: ({ tokenFile }) => tokenFile },
    { title: "CA FILE", wide: true, value: ({ caFile }) => caFile ?? "" },
    { title: "INSTANCE", value: ({ instance }) => instance },
    { title: "DATA DIR", wide: true, value: ({ dataDir }) => dataDir },
    { title: "RUN DIR", wide: true, value: ({ runDir }) => runDir },
  ],
  name: ({ context, address }) => context ?? address,
};

const view = defineVerb({
  description:
    "Shows what flags, environment, context and file come to together. A token's value is not shown.",
  options: {},
  formats: formatsFrom("yaml"),
  run: async ({ settings }) => {
    const { token, isTokenFileNamed: _, ...shown } = await settings();
    const row = { ...shown, token: token === undefined ? undefined : "(from DSEC_TOKEN)" };
    return { type: "listing", single: true, listing: listingOf(settingsView, [row]) };
  },
});

export const config: VerbGroup = {
  verbs: {
    "get-contexts": { summary: "list contexts", verb: getContexts },
    "current-context": { summary: "print the name of the context in use", verb: currentContext },
    "use-context": { summary: "choose the context that is used from now on", verb: useContext },
    "set-context": { summary: "make or change a context", verb: setContext },
    "delete-context": { summary: "forget a context", verb: deleteContext },
    view: { summary: "show the settings that hold here", verb: view },
  },
};

/** Paths as they are meant where the command is given: in the file, relative ones are relative to it. */
function absolutePaths(options: Partial<Record<ConnectionKey, string | undefined>>): Connection {
  const paths = ["token-file", "ca-file", "data-dir", "run-dir"] as const;
  return Object.fromEntries(
    paths.flatMap((key) => (options[key] === undefined ? [] : [[key, resolve(options[key])]])),
  );
}

function readFor(io: Io): Promise<ConfigFile> {
  return readConfigFile(configPath(io.env));
}

function needContext(config: ConfigFile, name: string): void {
  if (Object.hasOwn(config.contexts, name)) return;
  throw new DSecError("not_found", `${config.path} has no context ${JSON.stringify(name)}`);
}
