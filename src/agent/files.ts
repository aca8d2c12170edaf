import type { GuestFiles } from "./guest.ts";
import { DSecError } from "../protocol/errors.ts";
const no = () => Promise.reject(new DSecError("unsupported", "not yet"));
export class AgentFiles implements GuestFiles {
  constructor(_link: unknown) {}
  read = no;
  write = no;
  stat = no;
  list = no;
  mkdir = no;
  remove = no;
  rename = no;
}
