import { expect, test } from "vitest";
import { LinkNames } from "../../../src/daemon/network/link-name.ts";

test.each(["dsec", "dsec-a", "a-much-longer-instance-name", "Odd Name!"])(
  "links of '%s' fit the kernel's 15 characters and give their number back",
  (instance) => {
    const names = new LinkNames(instance);
    for (const number of [2, 65_533, 2 ** 24 - 2]) {
      expect(names.nameOf(number)).toMatch(/^[a-z0-9_-]{1,15}$/);
      expect(names.numberOf(names.nameOf(number))).toBe(number);
    }
  },
);

test("no instance takes another's links for its own", () => {
  const instances = [
    "dsec",
    "dsec-a",
    "dsec-2",
    "dsecx",
    "a-much-longer-instance-name",
    "a-much-longer-instance-nama",
  ];
  const all = instances.map((instance) => new LinkNames(instance));
  const taken = all.flatMap((names) =>
    all.filter((others) => others !== names && others.numberOf(names.nameOf(77)) !== undefined),
  );
  expect(taken).toEqual([]);
});

test.each(["eth0", "dsec_", "dsec_A", "dsec_0", "dsec_-1", "dsec_zzzzzz", "xdsec_1"])(
  "'%s' is no link of dsec",
  (name) => {
    expect(new LinkNames("dsec").numberOf(name)).toBeUndefined();
  },
);
