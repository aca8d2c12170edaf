/** Every engine whose sandboxes have a network, attacked from inside, as root. */
import { afterAll, beforeAll, describe } from "vitest";
import { addressAttacks } from "./address-attacks.ts";
import { changeAttacks } from "./change-attacks.ts";
import { engineLinks } from "./engine-links.ts";
import { EngineNetwork } from "./engine-network.ts";
import { nameAttacks } from "./name-attacks.ts";
import { networkedEngines } from "./networked-engines.ts";
import { packetAttacks } from "./packet-attacks.ts";

describe.each(networkedEngines)("a sandbox of $engine", (engine) => {
  let network: EngineNetwork;
  beforeAll(async () => {
    network = await EngineNetwork.open(engine);
  });
  afterAll(() => network[Symbol.asyncDispose]());
  const of = (): EngineNetwork => network;

  describe("links", () => {
    engineLinks(of);
  });
  // Before connections by name, which end when the proxy likes: these two count what comes to the internet.
  describe("packets", () => {
    packetAttacks(of);
  });
  describe("addresses", () => {
    addressAttacks(of);
  });
  describe("names", () => {
    nameAttacks(of);
  });
  describe("changes", () => {
    changeAttacks(of);
  });
});
