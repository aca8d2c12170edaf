import { expect, test } from "vitest";
import { parseRouteTable } from "../../../src/daemon/network/node-routes.ts";

test("the kernel's route table is read, with its addresses the other way round", () => {
  const table = `Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT
eth0\t00000000\t0100A8C0\t0003\t0\t0\t0\t00000000\t0\t0\t0
docker0\t000011AC\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0
*\t0000D50A\t00000000\t0201\t0\t0\t0\t0000FFFF\t0\t0\t0
dsec_2\t0200D50A\t00000000\t0005\t0\t0\t0\tFFFFFFFF\t0\t0\t0
`;
  expect(parseRouteTable(table)).toEqual([
    { link: "eth0", network: "0.0.0.0", prefixLength: 0, rejecting: false },
    { link: "docker0", network: "172.17.0.0", prefixLength: 16, rejecting: false },
    { link: "*", network: "10.213.0.0", prefixLength: 16, rejecting: true },
    { link: "dsec_2", network: "10.213.0.2", prefixLength: 32, rejecting: false },
  ]);
});
