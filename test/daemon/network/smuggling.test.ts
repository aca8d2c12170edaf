/** What says one name and means another: HTTP, TLS and DNS that a lenient reader takes for what it is not. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { afterAll, beforeAll, expect, test } from "vitest";
import { output } from "../temporary-node.ts";
import { clientHello, inTwoRecords, serverNameData, withExtension } from "./client-hello.ts";
import { GatedNetwork } from "./gated-network.ts";
import type { Guest } from "./guest.ts";
import type { Internet } from "./internet.ts";
import { broken, logged, refused, unchecked } from "./outcomes.ts";

let network: GatedNetwork;
let internet: Internet;

beforeAll(async () => {
  network = await GatedNetwork.open();
  ({ internet } = network);
});
afterAll(() => network[Symbol.asyncDispose]());

const allowedName = "host.example.test";
const extension = { serverName: 0, encryptedHello: 0xfe0d } as const;

/** Somebody who has looked up the one name that is allowed. */
async function enter(): Promise<Guest> {
  await internet.setZone({ [allowedName]: [1] });
  const guest = await network.enter(network.policy([`allow ${allowedName}`]));
  await guest.query(allowedName);
  return guest;
}

function speak(guest: Guest, port: number, send: string) {
  const host = internet.address(1);
  return guest.visitor.try({ kind: "tcp", host, port, send, encoding: "latin1", whole: port === 80 });
}

const host = `Host: ${allowedName}`;
const evil = "GET /smuggled HTTP/1.1\r\nHost: evil.test\r\nConnection: close\r\n\r\n";
const chunkedEvil = `0\r\n\r\n${evil}`;

test.for<[string, string, "malformed" | "no_name" | "default"]>([
  [
    "two lengths",
    `POST / HTTP/1.1\r\n${host}\r\nContent-Length: 0\r\nContent-Length: ${evil.length}\r\n\r\n${evil}`,
    "malformed",
  ],
  [
    "a length and chunks",
    `POST / HTTP/1.1\r\n${host}\r\nContent-Length: ${chunkedEvil.length}\r\nTransfer-Encoding: chunked\r\n\r\n${chunkedEvil}`,
    "malformed",
  ],
  [
    "chunks that are not the last coding",
    `POST / HTTP/1.1\r\n${host}\r\nTransfer-Encoding: chunked, identity\r\n\r\n${chunkedEvil}`,
    "malformed",
  ],
  [
    "a blank before the colon",
    `POST / HTTP/1.1\r\n${host}\r\nTransfer-Encoding : chunked\r\nContent-Length: 5\r\n\r\n${chunkedEvil}`,
    "malformed",
  ],
  ["a folded Host", `GET /smuggled HTTP/1.1\r\n${host}\r\n evil.test\r\n\r\n`, "malformed"],
  [
    "two Hosts",
    `GET /smuggled HTTP/1.1\r\n${host}\r\nHost: evil.test\r\nConnection: close\r\n\r\n`,
    "no_name",
  ],
  [
    "an absolute address",
    `GET http://evil.test/smuggled HTTP/1.1\r\n${host}\r\nConnection: close\r\n\r\n`,
    "no_name",
  ],
  ["no Host", "GET /smuggled HTTP/1.0\r\n\r\n", "no_name"],
  [
    "a Host with credentials",
    `GET /smuggled HTTP/1.1\r\nHost: ${allowedName}@evil.test\r\nConnection: close\r\n\r\n`,
    "no_name",
  ],
  ["a second request behind the first", `GET / HTTP/1.1\r\n${host}\r\n\r\n${evil}`, "default"],
  ["HTTP/2 from the start", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "malformed"],
  ["a line that cannot be passed on", `GET /smuggled\t HTTP/1.1\r\n${host}\r\n\r\n`, "malformed"],
  [
    "a chunk size that no number has",
    `POST / HTTP/1.1\r\n${host}\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n${evil}`,
    "malformed",
  ],
])("HTTP with %s carries nothing to another name", async ([, request, reason]) => {
  const guest = await enter();
  const outcome = await speak(guest, 80, request);
  expect(outcome.text ?? "").not.toContain("smuggled");
  await logged(guest, reason === "default" ? { allowed: false, name: "evil.test" } : unchecked(reason));
  const ok = `GET /after HTTP/1.1\r\n${host}\r\nConnection: close\r\n\r\n`;
  expect(await speak(guest, 80, ok)).toMatchObject({ text: expect.stringContaining("200 OK") });
  const got = internet.seen("http").map(({ text }) => text);
  expect(got).toContain(`${allowedName}/after`);
  expect(got.filter((text) => /evil|smuggled/.test(text))).toEqual([]);
  expect(network.interruptions).toEqual([]);
});

test("a Host of any length is refused, and logged no longer than names are", async () => {
  const guest = await enter();
  const name = `${"a".repeat(12_000)}.evil.test`;
  const answer = await speak(guest, 80, `GET / HTTP/1.1\r\nHost: ${name}\r\n\r\n`);
  expect(answer).toMatchObject({ text: expect.stringContaining("403 Forbidden") });
  await logged(guest, { stage: "name", allowed: false, name: "a".repeat(255) });
});

test("clients that go away at any moment end nothing but their connections", async () => {
  const guest = await enter();
  const hello = (await clientHello(allowedName)).toString("hex");
  // In turn: resets after nothing, a name, a request; between what the proxy reads, asks and is answered.
  const script = `
    const { connect } = require("node:net");
    const hello = Buffer.from("${hello}", "hex"), request = "GET /wait HTTP/1.1\\r\\n${host}\\r\\n\\r\\n";
    let left = 400;
    const next = () => {
      if (left-- <= 0) return;
      const number = left;
      const socket = connect(number % 2 ? 443 : 80, "${internet.address(1)}");
      socket.on("error", () => {}).on("close", next);
      socket.on("connect", () => {
        if (number % 7) socket.write(number % 2 ? hello : request);
        let turns = number % 5;
        const end = () => (turns-- > 0 ? setImmediate(end) : socket.resetAndDestroy());
        end();
      });
    };
    for (let lanes = 0; lanes < 16; lanes += 1) next();`;
  await output("nsenter", `--net=${guest.netnsPath}`, process.execPath, "-e", script);
  const ok = `GET /after HTTP/1.1\r\n${host}\r\nConnection: close\r\n\r\n`;
  expect(await speak(guest, 80, ok)).toMatchObject({ text: expect.stringContaining("200 OK") });
  expect(network.interruptions).toEqual([]);
});

test("requests that are sent ahead are answered in order, up to a number; more end the connection", async () => {
  const guest = await enter();
  const ahead = (count: number) => {
    const one = (number: number, connection: string) =>
      `GET /ahead/${number} HTTP/1.1\r\n${host}\r\nConnection: ${connection}\r\n\r\n`;
    const all = Array.from({ length: count }, (_, number) => one(number, "keep-alive")).join("");
    return speak(guest, 80, all + one(count, "close"));
  };
  expect((await ahead(20)).text?.split("200 OK")).toHaveLength(22);
  expect((await ahead(5000)).text?.split("200 OK") ?? []).not.toHaveLength(5002);
  const served = internet.seen("http").filter(({ text }) => text.includes("/ahead/"));
  expect(served.slice(0, 21).map(({ text }) => text)).toEqual(
    Array.from({ length: 21 }, (_, number) => `${allowedName}/ahead/${number}`),
  );
  expect(served.length).toBeLessThan(1000);
});

test("an allowed server that answers what no server may ends nothing but its connection", async () => {
  await internet.setZone({ [allowedName]: [1] });
  const guest = await network.enter(network.policy([`allow ${allowedName}:8081`]));
  await guest.query(allowedName);
  const answers = [
    "HTTP/1.1 000 Zero\r\nContent-Length: 0\r\n\r\n",
    "HTTP/1.1 099 Low\r\nContent-Length: 0\r\n\r\n",
    "HTTP/1.1 200 \x01\x7f\r\nContent-Length: 0\r\n\r\n",
    "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\nraw",
    "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
    "HTTP/1.1 204 None\r\nContent-Length: 5\r\n\r\nhello",
    "HTTP/1.1 200 OK\r\nX: a\x00b\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort",
    "no HTTP at all",
  ];
  const script = `
    const answers = ${JSON.stringify(answers)};
    let number = 0;
    require("node:net").createServer((socket) => {
      socket.on("error", () => {}).once("data", () => socket.end(answers[number++ % answers.length], "latin1"));
    }).listen(8081, "${internet.address(1)}", () => console.log("up"));`;
  const server = spawn("nsenter", [`--net=${internet.netnsPath}`, process.execPath, "-e", script], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  await once(server.stdout, "data");
  try {
    const send = `GET / HTTP/1.1\r\n${host}\r\nConnection: close\r\n\r\n`;
    const outcomes: unknown[] = [];
    for (const _ of answers) outcomes.push((await speak(guest, 8081, send)).text?.split("\r\n")[0]);
    expect(outcomes[3]).toBe("HTTP/1.1 502 Bad Gateway");
    expect(outcomes[4]).toBe("HTTP/1.1 200 OK");
    expect(outcomes.at(-1)).toBe("HTTP/1.1 502 Bad Gateway");
    expect(network.interruptions).toEqual([]);
  } finally {
    server.kill("SIGKILL");
    await once(server, "close");
  }
});

test("a ClientHello with an encrypted name, two names, or in two records is refused; without, it is answered", async () => {
  const guest = await enter();
  const hello = await clientHello(allowedName);
  const tls = async (bytes: Buffer) => (await speak(guest, 443, bytes.toString("latin1"))).text;
  const alert = "\x15\x03\x01\x00\x02\x02\x31";
  expect((await tls(hello))?.charCodeAt(0)).toBe(0x16);
  const outer = Buffer.from("0000010001000020".padEnd(120, "0"), "hex");
  expect(await tls(withExtension(hello, extension.encryptedHello, outer))).toBe(alert);
  await logged(guest, { name: allowedName, ...unchecked("encrypted_server_name") });
  const twice = withExtension(hello, extension.serverName, serverNameData("evil.test"));
  const attacks = [twice, inTwoRecords(hello, 60), inTwoRecords(hello, 1)];
  for (const bytes of attacks) expect(await tls(bytes)).toBeUndefined();
  await logged(guest, unchecked("malformed"));
  const listed = withExtension(
    await clientHello(""),
    extension.serverName,
    serverNameData(allowedName, "evil.test"),
  );
  expect([undefined, alert]).toContain(await tls(listed));
  expect(await tls(await clientHello("evil.test"))).toBe(alert);
});

test("encrypted DNS is refused, by another name at an allowed address and by its port", async () => {
  const guest = await enter();
  const ca = internet.caCertificate;
  const at = {
    kind: "https",
    host: internet.address(1),
    ca,
    path: "/dns-query?dns=AAABAAABAAAAAAAA",
  } as const;
  for (const serverName of [`dns.${allowedName}`, `${allowedName}.evil.test`, "dns.example.test"]) {
    expect(await guest.visitor.try({ ...at, serverName })).toEqual(broken);
    await logged(guest, { stage: "name", name: serverName, allowed: false });
  }
  expect(await guest.visitor.try({ ...at, serverName: allowedName, port: 853 })).toEqual(refused);
  await logged(guest, { stage: "connect", name: allowedName, port: 853, allowed: false });
  expect(await guest.visitor.try({ ...at, serverName: allowedName })).toMatchObject({
    text: expect.stringContaining("200 OK"),
  });
  expect(internet.seen("https").filter(({ text }) => /evil|^dns/.test(text))).toEqual([]);
});

test("DNS over TCP answers what is one question for an allowed name, and asks nothing else", async () => {
  const guest = await enter();
  const message = (
    name: string,
    options: { flags?: number; type?: number; class?: number; count?: number } = {},
  ) => {
    const { flags = 0x0100, type = 1, count = 1 } = options;
    const header = Buffer.alloc(12);
    header.writeUInt16BE(7, 0);
    header.writeUInt16BE(flags, 2);
    header.writeUInt16BE(count, 4);
    const labels = name
      .split(".")
      .map((label) => Buffer.concat([Buffer.from([label.length]), Buffer.from(label)]));
    const question = Buffer.concat([...labels, Buffer.from([0, 0, type, 0, options.class ?? 1])]);
    const body = Buffer.concat([header, ...Array.from({ length: count }, () => question)]);
    return Buffer.concat([Buffer.from([body.length >> 8, body.length & 0xff]), body]);
  };
  const ask = (...bytes: readonly Buffer[]) =>
    guest.visitor.try({
      kind: "tcp",
      host: network.gateway,
      port: 53,
      send: Buffer.concat(bytes).toString("latin1"),
      encoding: "latin1",
    });
  const code = (text = "") => text.charCodeAt(5) & 0xf;
  const before = internet.seen("dns").length;
  for (const [options, expected] of [
    [{ count: 2 }, 1],
    [{ class: 3 }, 4],
    [{ flags: 0x2800 }, 4],
  ] as const)
    expect(code((await ask(message(allowedName, options))).text)).toBe(expected);
  // Zone transfer, and anything.
  for (const type of [252, 255]) expect(code((await ask(message(allowedName, { type }))).text)).toBe(0);
  for (const bytes of [
    Buffer.from([0, 0]),
    Buffer.from([0xff, 0xff, 1]),
    message(allowedName, { flags: 0x8180 }),
  ])
    expect(await ask(bytes)).toMatchObject({ error: expect.anything() });
  expect(code((await ask(message("tunnel.evil.test"), message(allowedName))).text)).toBe(3);
  const compressed = Buffer.concat([
    Buffer.from([0, 18, 0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0]),
    Buffer.from([0xc0, 12, 0, 1, 0, 1]),
  ]);
  expect(code((await ask(compressed)).text)).toBe(1);
  const { text = "" } = await ask(message(allowedName));
  expect(code(text)).toBe(0);
  expect(Buffer.from(text, "latin1").includes(Buffer.from(internet.address(1).split(".").map(Number)))).toBe(
    true,
  );
  await logged(guest, { stage: "query", protocol: "tcp", name: "tunnel.evil.test", allowed: false });
  expect(
    internet
      .seen("dns")
      .slice(before)
      .filter(({ text: name }) => name !== allowedName),
  ).toEqual([]);
});
