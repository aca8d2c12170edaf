import { describe, expect, test } from "vitest";
import { codeOf, mirror, mirrored, send } from "./http-mirror.ts";
import { PortFleet, sandboxId } from "./port-fleet.ts";

describe("the credential", () => {
  test("is the fleet's token or one for the port, in any of its places, and never reaches the service", async () => {
    const fleet = await PortFleet.start();
    const { port } = await mirror();
    const { token } = await fleet.sandbox.createPortToken(port);
    const fleets = fleet.coordinator.token;
    const ways: [string, Record<string, string>][] = [
      ["/x", { authorization: `Bearer ${fleets}` }],
      ["/x", { authorization: `Bearer ${token}` }],
      ["/x", { "x-dsec-token": token }],
      ["/x", { "x-dsec-token": fleets }],
      ["/x", { "x-dsec-token": token, authorization: `Bearer ${fleets}` }],
      [`/x?dsec_token=${token}`, {}],
      [`/x?dsec_token=${token}`, { referer: `${fleet.url(port, "/")}?dsec_token=${token}` }],
    ];
    for (const [rest, headers] of ways) {
      const answer = await send(fleet.url(port, rest), { headers });
      expect(answer.status).toBe(200);
      const seen = mirrored(answer);
      expect(seen.url).toBe("/x");
      for (const secret of [token, fleets]) expect(JSON.stringify(seen)).not.toContain(secret);
    }
  });

  test("in the query is taken out, and the rest of the query stays as it was", async () => {
    const fleet = await PortFleet.start();
    const { port } = await mirror();
    const { token } = await fleet.sandbox.createPortToken(port);
    const answer = await send(fleet.url(port, `/p?a=%20b&dsec_token=${token}&c&=d`));
    expect(mirrored(answer).url).toBe("/p?a=%20b&c&=d");
    expect(answer.headers["referrer-policy"]).toBe("no-referrer");
  });

  test("leaves authorization to the service where it is somewhere else", async () => {
    const fleet = await PortFleet.start();
    const { port } = await mirror();
    const { token } = await fleet.sandbox.createPortToken(port);
    const headers = { "x-dsec-token": token, authorization: "Basic of-the-service" };
    expect(mirrored(await send(fleet.url(port), { headers })).headers).toMatchObject({
      authorization: "Basic of-the-service",
    });
  });

  test("for another port, another sandbox, expired, forged or given twice is refused", async () => {
    let now = Date.now();
    const fleet = await PortFleet.start({ now: () => now });
    const { port } = await mirror();
    const { token, expiresAt, path } = await fleet.sandbox.createPortToken(port, { ttl: 60 });
    expect(path).toBe(`/v1/sandboxes/${sandboxId}/http/${port}/`);
    const tryIt = async (given: string, url = fleet.url(port)): Promise<string> =>
      codeOf(await send(url, { headers: { "x-dsec-token": given } }));
    const other = await fleet.sandbox.createPortToken(port === 1 ? 2 : 1);
    expect(await tryIt(other.token)).toBe("forbidden");
    expect(await tryIt(token, fleet.url(port).replace(sandboxId, "n1-aaaaaaaaaa"))).toBe("forbidden");
    expect(await tryIt(token, fleet.url(port).replace(sandboxId, "n1"))).toBe("forbidden");
    const parts = token.split(".");
    const forged = [
      token.slice(0, -1),
      `${token}A`,
      `${token}.`,
      [...parts.slice(0, 3), String(expiresAt), parts[4]].join("."),
      parts.slice(0, 4).join("."),
      "dsecport",
      "dsecport....",
      "",
    ];
    for (const given of forged) expect(await tryIt(given)).toBe("unauthenticated");
    expect(codeOf(await send(fleet.url(port, `/?dsec_token=${token}&dsec_token=${token}`)))).toBe(
      "unauthenticated",
    );
    expect(codeOf(await send(fleet.url(port, `/?dsec_token=${fleet.coordinator.token}`)))).toBe(
      "unauthenticated",
    );
    expect(codeOf(await send(fleet.url(port)))).toBe("unauthenticated");
    now = expiresAt - 1;
    expect((await send(fleet.url(port), { headers: { "x-dsec-token": token } })).status).toBe(200);
    now = expiresAt;
    expect(await tryIt(token)).toBe("unauthenticated");
    expect(fleet.accepted.length).toBe(1);
  });

  test("for a port opens nothing else of the API", async () => {
    const fleet = await PortFleet.start();
    const { token } = await fleet.sandbox.createPortToken(80);
    const headers = { authorization: `Bearer ${token}` };
    for (const path of ["/v1/sandboxes", `/v1/sandboxes/${sandboxId}`, `/v1/sandboxes/${sandboxId}/ports/80`])
      expect((await send(`${fleet.coordinator.addresses[1]}${path}`, { headers })).status).toBe(401);
  });

  test("can be asked for with sensible values only", async () => {
    const { sandbox } = await PortFleet.start();
    for (const [port, ttl] of [
      [0, 60],
      [65_536, 60],
      [80, 0],
      [80, 1e9],
    ] as const)
      await expect(sandbox.createPortToken(port, { ttl })).rejects.toMatchObject({
        code: "invalid_argument",
      });
  });
});
