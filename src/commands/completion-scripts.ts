import { globalOptionModels } from "./completion-model.ts";
import type { OptionModel, VerbModel } from "./completion-model.ts";

/** Shell code that lists what an operand can be. */
const operandLists: Readonly<Record<VerbModel["operand"], string>> = {
  sandbox: "$(dsec ls -o name 2>/dev/null)",
  context: "$(dsec config get-contexts -o name 2>/dev/null)",
  shell: "bash zsh fish",
  none: "",
};

export function bashScript(verbs: readonly VerbModel[]): string {
  return `# bash completion of dsec: source <(dsec completion bash)
_dsec() {
  local cur=\${COMP_WORDS[COMP_CWORD]} prev=\${COMP_WORDS[COMP_CWORD-1]} path="" i
  for ((i = 1; i < COMP_CWORD; i++)); do
    case "$path \${COMP_WORDS[i]}" in
      ${verbs.map(({ path }) => `"${[...path.slice(0, -1), ""].join(" ") || " "}${path.at(-1) ?? ""}"`).join("|")})
        path="\${path:+$path }\${COMP_WORDS[i]}" ;;
    esac
  done
  case "$path:$prev" in
${choiceCases(verbs)}
  esac
  if [[ $cur == -* ]]; then
    case "$path" in
${verbs.map((verb) => `      "${verb.path.join(" ")}") COMPREPLY=($(compgen -W "${flagNames(verb).join(" ")}" -- "$cur")) ;;`).join("\n")}
      *) COMPREPLY=($(compgen -W "${globalNames().join(" ")}" -- "$cur")) ;;
    esac
    return
  fi
  case "$path" in
    "") COMPREPLY=($(compgen -W "${topLevel(verbs).join(" ")}" -- "$cur")) ;;
${operandCases(verbs, (words) => `COMPREPLY=($(compgen -W "${words}" -- "$cur"))`)}
  esac
}
complete -o default -F _dsec dsec
`;
}

export function zshScript(verbs: readonly VerbModel[]): string {
  return `#compdef dsec
# zsh completion of dsec: dsec completion zsh > "\${fpath[1]}/_dsec"
_dsec() {
  local cur=\${words[CURRENT]} prev=\${words[CURRENT-1]} path_="" i
  for ((i = 2; i < CURRENT; i++)); do
    case "$path_ \${words[i]}" in
      ${verbs.map(({ path }) => `"${[...path.slice(0, -1), ""].join(" ") || " "}${path.at(-1) ?? ""}"`).join("|")})
        path_="\${path_:+$path_ }\${words[i]}" ;;
    esac
  done
  case "$path_:$prev" in
${choiceCases(verbs, (words) => `compadd -- ${words}; return`)}
  esac
  if [[ $cur == -* ]]; then
    case "$path_" in
${verbs.map((verb) => `      "${verb.path.join(" ")}") compadd -- ${flagNames(verb).join(" ")} ;;`).join("\n")}
      *) compadd -- ${globalNames().join(" ")} ;;
    esac
    return
  fi
  local -a verbs
  case "$path_" in
    "")
      verbs=(
${verbs
  .filter(({ path }) => path.length === 1)
  .map(({ path, summary }) => `        ${quote(`${path.join(" ")}:${summary.replaceAll(":", "\\:")}`)}`)
  .join("\n")}
      )
      _describe verb verbs ;;
${operandCases(verbs, (words) => `compadd -- ${words}`)}
    *) _files ;;
  esac
}
compdef _dsec dsec
`;
}

export function fishScript(verbs: readonly VerbModel[]): string {
  const lines = ["# fish completion of dsec: dsec completion fish > ~/.config/fish/completions/dsec.fish"];
  lines.push("complete -c dsec -f");
  for (const option of globalOptionModels) lines.push(`complete -c dsec ${fishOption(option)}`);
  for (const verb of verbs) {
    const [top = "", child] = verb.path;
    if (child === undefined) {
      lines.push(`complete -c dsec -n __fish_use_subcommand -a ${top} -d ${quote(verb.summary)}`);
    } else {
      const siblings = verbs.find(({ path }) => path.length === 1 && path[0] === top)?.children ?? [];
      const when = `__fish_seen_subcommand_from ${top}; and not __fish_seen_subcommand_from ${siblings.join(" ")}`;
      lines.push(`complete -c dsec -n ${quote(when)} -a ${child} -d ${quote(verb.summary)}`);
    }
    const condition = quote(verb.path.map((word) => `__fish_seen_subcommand_from ${word}`).join("; and "));
    for (const option of verb.options) lines.push(`complete -c dsec -n ${condition} ${fishOption(option)}`);
    const operands = operandLists[verb.operand];
    if (operands !== "")
      lines.push(`complete -c dsec -n ${condition} -a ${quote(operands.replace(/^\$/, ""))}`);
  }
  return `${lines.join("\n")}\n`;
}

function choiceCases(
  verbs: readonly VerbModel[],
  reply = (words: string): string => `COMPREPLY=($(compgen -W "${words}" -- "$cur")); return`,
): string {
  return verbs
    .flatMap(({ path, options }) =>
      options
        .filter(({ choices }) => choices.length > 0)
        .map(({ names, choices }) => {
          const patterns = names.map((name) => `"${path.join(" ")}:${name}"`).join("|");
          return `    ${patterns}) ${reply(choices.join(" "))} ;;`;
        }),
    )
    .join("\n");
}

function operandCases(verbs: readonly VerbModel[], reply: (words: string) => string): string {
  return verbs
    .map(({ path, children, operand }) => ({
      path,
      words: children.length > 0 ? children.join(" ") : operandLists[operand],
    }))
    .filter(({ words }) => words !== "")
    .map(({ path, words }) => `    "${path.join(" ")}") ${reply(words)} ;;`)
    .join("\n");
}

function topLevel(verbs: readonly VerbModel[]): string[] {
  return verbs.flatMap(({ path }) => (path.length === 1 ? [...path] : []));
}

function flagNames({ options }: VerbModel): string[] {
  return [...options.flatMap(({ names }) => names), ...globalNames(), "--help"];
}

function globalNames(): string[] {
  return globalOptionModels.flatMap(({ names }) => names);
}

function fishOption({ names, help, takesValue, choices }: OptionModel): string {
  const flags = names.map((name) => (name.startsWith("--") ? `-l ${name.slice(2)}` : `-s ${name.slice(1)}`));
  const value = takesValue ? ` -x${choices.length > 0 ? ` -a ${quote(choices.join(" "))}` : ""}` : "";
  return `${flags.join(" ")} -d ${quote(help)}${value}`;
}

function quote(text: string): string {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}
