import type { Verb, VerbGroup } from "./verb.ts";

interface VerbEntry {
  readonly summary: string;
  readonly load: () => Promise<Verb | VerbGroup>;
}

/**
 * Every verb, by the heading `dsec --help` shows it under. Summaries stand here and not with the verbs, so that help
 * loads none of them.
 */
export const verbGroups: Readonly<Record<string, Readonly<Record<string, VerbEntry>>>> = {
  Sandboxes: {
    run: {
      summary: "make a sandbox, and run a command in it",
      load: async () => (await import("./run.ts")).run,
    },
    exec: { summary: "run a command in a sandbox", load: async () => (await import("./exec.ts")).exec },
    attach: {
      summary: "follow a command that runs detached, and type into it",
      load: async () => (await import("./attach-exec.ts")).attachExec,
    },
    shell: { summary: "open a shell in a sandbox", load: async () => (await import("./shell.ts")).shell },
    cp: {
      summary: "copy files to and from a sandbox",
      load: async () => (await import("./cp.ts")).cp,
    },
    forward: {
      summary: "lead ports of this machine to ports of a sandbox",
      load: async () => (await import("./forward.ts")).forward,
    },
    ls: { summary: "list sandboxes", load: async () => (await import("./ls.ts")).ls },
    inspect: {
      summary: "show all there is to know of sandboxes",
      load: async () => (await import("./inspect.ts")).inspect,
    },
    logs: { summary: "show recorded output", load: async () => (await import("./logs.ts")).logs },
    audit: {
      summary: "show what processes in a sandbox did",
      load: async () => (await import("./audit.ts")).audit,
    },
    watch: { summary: "show sandboxes as they change", load: async () => (await import("./watch.ts")).watch },
    wait: { summary: "wait until sandboxes have ended", load: async () => (await import("./wait.ts")).wait },
    touch: {
      summary: "renew the idle deadline of sandboxes",
      load: async () => (await import("./touch.ts")).touch,
    },
    update: {
      summary: "change limits of running sandboxes",
      load: async () => (await import("./update.ts")).update,
    },
    stop: { summary: "end sandboxes", load: async () => (await import("./stop.ts")).stop },
    rm: {
      summary: "end sandboxes and forget their records",
      load: async () => (await import("./rm.ts")).rm,
    },
    reclaim: {
      summary: "end idle sandboxes now",
      load: async () => (await import("./reclaim.ts")).reclaim,
    },
  },
  Fleet: {
    up: { summary: "start a local fleet", load: async () => (await import("./up.ts")).up },
    down: { summary: "end the local fleet", load: async () => (await import("./down.ts")).down },
    nodes: { summary: "list the fleet's nodes", load: async () => (await import("./nodes.ts")).nodes },
    doctor: {
      summary: "say which backends work here, why not, and what mends it",
      load: async () => (await import("./doctor.ts")).doctor,
    },
    registries: {
      summary: "show what registries' names stand for in network policies",
      load: async () => (await import("./registries.ts")).registries,
    },
    policy: {
      summary: "what sandboxes may reach: named policies, pushed while they run",
      load: async () => (await import("./policy.ts")).policy,
    },
    layer: { summary: "make and list layers", load: async () => (await import("./layer.ts")).layer },
    daemon: {
      summary: "run a node's daemon in the foreground",
      load: async () => (await import("./daemon.ts")).daemon,
    },
    coordinator: {
      summary: "run a coordinator in the foreground",
      load: async () => (await import("./coordinator.ts")).coordinator,
    },
  },
  "This program": {
    config: { summary: "fleets by name: contexts", load: async () => (await import("./config.ts")).config },
    completion: {
      summary: "print a completion script for a shell",
      load: async () => (await import("./completion.ts")).completion,
    },
    version: {
      summary: "show the versions of client and fleet",
      load: async () => (await import("./version.ts")).version,
    },
  },
};

export function findVerb(name: string): VerbEntry | undefined {
  for (const group of Object.values(verbGroups)) if (Object.hasOwn(group, name)) return group[name];
  return undefined;
}
