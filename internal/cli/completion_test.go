// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"
)

// asProgram makes the binary of the tests behave as liqoctl: a shell completes by running the program.
const asProgram = "LIQOCTL_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		streams := genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}
		os.Exit(Run(context.Background(), streams, append([]string{"liqoctl"}, os.Args[1:]...)))
	}
	os.Exit(m.Run())
}

// TestCompletionInShells: each shell accepts its script, and completes a command and a flag with it.
func TestCompletionInShells(t *testing.T) {
	for shell, script := range map[string]string{
		// Without the package bash-completion, the script needs one function of it.
		"bash": `
			_get_comp_words_by_ref() { words=("${COMP_WORDS[@]}") cword=$COMP_CWORD cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}; }
			source <(liqoctl completion bash)
			ask() { COMP_WORDS=("$@") COMP_CWORD=$(($#-1)) COMP_LINE="$*" COMP_POINT=999 COMP_TYPE=9; COMPREPLY=(); __start_liqoctl; printf '%s\n' "${COMPREPLY[@]}"; }
			complete -p liqoctl | grep -q __start_liqoctl && ask liqoctl unin && ask liqoctl install --only-out`,
		"zsh": `
			autoload -U compinit && compinit -u -d "$HOME/dump" && source <(liqoctl completion zsh) && [ "$_comps[liqoctl]" = _liqoctl ] || exit 1
			_describe() { print -rl -- $completions; }
			ask() { words=("$@") CURRENT=$#; _liqoctl; }
			ask liqoctl unin && ask liqoctl install --only-out`,
		"fish": `
			liqoctl completion fish | source
			complete -C 'liqoctl unin'; and complete -C 'liqoctl install --only-out'`,
	} {
		t.Run(shell, func(t *testing.T) {
			path, err := exec.LookPath(shell)
			if err != nil {
				t.Skip("this machine has no " + shell)
			}
			dir := t.TempDir()
			if err := os.Symlink(mustExecutable(t), filepath.Join(dir, "liqoctl")); err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), path, "-c", script)
			cmd.Env = append(os.Environ(), asProgram+"=1", "HOME="+dir, "XDG_CONFIG_HOME="+dir, "PATH="+dir+":"+os.Getenv("PATH"))
			output, err := cmd.CombinedOutput()
			if err != nil || !strings.Contains(string(output), "uninstall") || !strings.Contains(string(output), "--only-output-values") {
				t.Errorf("%v\n%s", err, output)
			}
		})
	}
}

func mustExecutable(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// TestDocs: the reference has a page of each command, with the header for web sites if it is wanted, or as a man page.
func TestDocs(t *testing.T) {
	for name, test := range map[string]struct {
		args, file, start string
	}{
		"default": {"", "liqoctl_install.md", "## liqoctl install\n"},
		"headers": {"--generate-headers", "liqoctl_peer_out-of-band.md", "---\ntitle: liqoctl peer out-of-band\n---\n\n## liqoctl peer out-of-band\n"},
		"man":     {"--type man", "liqoctl-offload-namespace.1", ""},
	} {
		dir := t.TempDir()
		code, out, errOut := run(t, "", append(strings.Fields("docs --dir "+dir), strings.Fields(test.args)...)...)
		text, err := os.ReadFile(filepath.Join(dir, test.file))
		if code != 0 || out+errOut != "" || err != nil || len(text) == 0 || !strings.HasPrefix(string(text), test.start) {
			t.Errorf("%s: %d, %s%s, %v, %.100s", name, code, out, errOut, err, text)
		}
	}
	if code, _, errOut := run(t, "", "docs", "--type", "html"); code != 1 || !strings.Contains(errOut, "want markdown or man") {
		t.Errorf("unknown type: %d %s", code, errOut)
	}
}
