// SPDX-License-Identifier: Apache-2.0

package offload

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"liqo.io/liqo/test/env"
)

// kubectlPods are pods that exist once in rome and once in milan: the output of kubectl must be the same for both.
const kubectlPods = `
apiVersion: v1
kind: Pod
metadata: {name: NAME, labels: {app: kubectl}}
spec:
  PLACE
  terminationGracePeriodSeconds: 1
  initContainers:
  - {name: first, image: "playground.local/tools:1", imagePullPolicy: Never, command: [sh, -c, "echo from the first"]}
  containers:
  - name: main
    image: playground.local/tools:1
    imagePullPolicy: Never
    command: [sh, -c, "for i in 1 2 3 4 5; do echo line $i; done; trap 'exit 0' TERM; while sleep 0.3; do echo tick; done"]
  - {name: reader, image: "playground.local/tools:1", imagePullPolicy: Never, stdin: true, command: [sh, -c, "while read line; do echo read $line; done; sleep infinity"]}
  - {name: server, image: "localhost/traffic:dev", imagePullPolicy: Never, args: [serve]}
---
apiVersion: v1
kind: Pod
metadata: {name: NAME-fails}
spec:
  PLACE
  terminationGracePeriodSeconds: 1
  restartPolicy: Never
  initContainers: [{name: first, image: "playground.local/tools:1", imagePullPolicy: Never, command: [sh, -c, "echo it fails; exit 3"]}]
  containers: [{name: main, image: "playground.local/tools:1", imagePullPolicy: Never}]
---
apiVersion: v1
kind: Pod
metadata: {name: NAME-ends}
spec:
  PLACE
  restartPolicy: Never
  containers: [{name: main, image: "playground.local/tools:1", imagePullPolicy: Never, command: [sh, -c, "for i in 1 2 3; do echo line $i; sleep 0.5; done; echo end"]}]
---
apiVersion: v1
kind: Pod
metadata: {name: NAME-restarts}
spec:
  PLACE
  terminationGracePeriodSeconds: 1
  containers: [{name: main, image: "playground.local/tools:1", imagePullPolicy: Never, command: [sh, -c, "if [ -e /state/one ]; then echo second; sleep infinity; fi; touch /state/one; echo first; exit 1"], volumeMounts: [{name: state, mountPath: /state}]}]
  volumes: [{name: state, emptyDir: {}}]
`

// both are the pods' names.
var both = []string{"inrome", "inmilan"}

// TestKubectl runs kubectl on a local and on an offloaded pod and compares the results.
func TestKubectl(t *testing.T) {
	together(t)
	s := offload(t)
	for name, place := range map[string]string{
		"inrome": "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: " +
			"liqo.io/type, operator: DoesNotExist}]}]}}}",
		"inmilan": "nodeSelector: {liqo.io/type: virtual-node}",
	} {
		s.apply(t, strings.NewReplacer("NAME", name, "PLACE", place).Replace(kubectlPods))
	}
	s.running(t, both...)
	for _, name := range both {
		s.wantLocal(t, podKind, name+"-fails", "status: {phase: Failed, initContainerStatuses: [{state: {terminated: {exitCode: 3}}}]}")
		s.wantLocal(t, podKind, name+"-ends", "status: {phase: Succeeded}")
		s.wantLocal(t, podKind, name+"-restarts", "status: {containerStatuses: [{restartCount: 1, ready: true}]}")
	}
	// Before "debug" adds a container to one of the pods.
	t.Run("same results", func(t *testing.T) { sameResults(t, s) })
	for name, step := range map[string]func(*testing.T, namespace){
		"logs -f": followLogs, "attach": attach, "terminal": terminal, "cp": copyFiles, "port-forward": portForward, "debug": debug, "top": top,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			step(t, s)
		})
	}
}

// timestamp matches a time as --timestamps prints it.
var timestamp = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z`)

// generated matches generated identifiers, which differ between two equal pods.
var generated = regexp.MustCompile(`[0-9a-f]{64}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)

// normalized replaces in an output everything that differs between two equal pods.
func normalized(s namespace, name, text string) string {
	text = timestamp.ReplaceAllString(generated.ReplaceAllString(text, "ID"), "TIME")
	return strings.NewReplacer(s.remote, "NS", s.name, "NS", name, "POD").Replace(text)
}

// sameResults compares exit codes, output and error messages.
func sameResults(t *testing.T, s namespace) {
	for _, command := range []string{
		"logs POD -c first", "logs POD -c main --tail=-1 --limit-bytes=20", "logs POD -c first --timestamps", "logs POD -c first --prefix",
		"logs POD --limit-bytes=20",
		"logs POD -c missing", "logs POD -c main --previous", "logs POD-fails -c first", "logs POD-fails -c main", "logs POD-ends", "logs POD-ends --tail=2",
		"logs POD-ends --since=1h", "logs POD-ends --since-time=2038-01-01T00:00:00Z", "logs POD-ends -f", "logs POD-restarts --previous",
		"logs POD-restarts", "logs POD-restarts -f --previous",
		"exec POD -c main -- sh -c 'echo out; echo err >&2; exit 7'", "exec POD -c main -- nothing", "exec POD -c missing -- true",
		"exec -i POD -c main -- cat", "exec POD -- echo default",
		"exec POD-ends -- true", "exec POD-fails -c main -- true", "exec POD -c main -- sh -c 'yes | head -c 300000 | sha256sum'", "exec -it POD -c main -- cat",
		"attach POD-ends", "attach POD -c missing", "port-forward POD-ends 0:80", "debug POD --image=playground.local/tools:1 -c main",
	} {
		t.Run(strings.ReplaceAll(command, "/", "_"), func(t *testing.T) {
			t.Parallel()
			var results [2]string
			for i, name := range both {
				args := []string{"-n", s.name}
				for _, word := range splitWords(command) {
					args = append(args, strings.ReplaceAll(word, "POD", name))
				}
				result := rome.TryKubectl("some input\n", args...)
				results[i] = fmt.Sprintf("exit code %d\n%s\n%s", result.Code, normalized(s, name, result.Out), normalized(s, name, result.Err))
			}
			if results[0] != results[1] {
				t.Errorf("for the pod in rome:\n%s\nfor the pod in milan:\n%s", results[0], results[1])
			}
		})
	}
	if output := s.kubectl(t, "logs", "inmilan", "-c", "main", "--tail=-1", "--limit-bytes=20"); output != "line 1\nline 2\nline 3"[:20] {
		t.Errorf("the first 20 bytes are %q", output)
	}
	if output := s.kubectl(t, "logs", "inmilan", "-c", "first", "--timestamps"); !timestamp.MatchString(output) || !strings.HasSuffix(output, "from the first") {
		t.Errorf("with a time: %q", output)
	}
	if output := s.kubectl(t, "logs", "-l", "app=kubectl", "-c", "first", "--prefix"); strings.Count(output, "from the first") != 2 {
		t.Errorf("logs of both pods by label: %q", output)
	}
}

var quoted = regexp.MustCompile(`'[^']*'|\S+`)

// splitWords splits a command as a shell does.
func splitWords(command string) (all []string) {
	for _, word := range quoted.FindAllString(command, -1) {
		all = append(all, strings.Trim(word, "'"))
	}
	return all
}

// startKubectl prepares kubectl. The first call of line starts it; each call waits for a line of the output that contains want, and returns it.
func startKubectl(t *testing.T, s namespace, args ...string) (cmd *exec.Cmd, line func(what, want string) string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), env.Hang)
	cmd = rome.Command(ctx, append([]string{"-n", s.name}, args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	all := make(chan string, 10000)
	t.Cleanup(func() {
		cancel()
		if cmd.Process == nil {
			return
		}
		for range all { // until it has exited
		}
		_ = cmd.Wait()
	})
	return cmd, func(what, want string) string {
		t.Helper()
		if cmd.Process == nil {
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			go func() {
				defer close(all)
				for scan := bufio.NewScanner(out); scan.Scan(); {
					all <- scan.Text()
				}
			}()
		}
		hangs := time.After(env.Hang)
		var seen []string
		for {
			select {
			case line, more := <-all:
				if strings.Contains(line, want) && more {
					return line
				}
				if !more {
					t.Fatalf("%s: kubectl exited after %q, %s", what, seen, stderr.String())
				}
				seen = append(seen, line)
			case <-hangs:
				t.Fatalf("not within %v: %s; seen %q", env.Hang, what, seen)
			}
		}
	}
}

func followLogs(t *testing.T, s namespace) {
	_, line := startKubectl(t, s, "logs", "inmilan", "-c", "main", "-f", "--tail=1")
	for range 4 {
		line("the log of a pod in milan arrives continuously", "tick")
	}
}

func attach(t *testing.T, s namespace) {
	cmd, line := startKubectl(t, s, "attach", "-i", "inmilan", "-c", "reader")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for i := 0; ; i++ { // repeated, because kubectl does not show an answer from before it is attached
			if _, err := fmt.Fprintf(in, "word %d\n", i); err != nil {
				return
			}
			<-time.After(200 * time.Millisecond)
		}
	}()
	line("the container reads and answers", "read word")
	_ = in.Close()
	env.Eventually(t, env.Hang, "the answer is in the log", func() (string, bool) {
		output := s.kubectl(t, "logs", "inmilan", "-c", "reader")
		return output, strings.Contains(output, "read word")
	})
}

// onTerminal prints the terminal of a container and its size, which kubectl sends only after the script has started.
const onTerminal = `echo terminal $(tty)
for i in $(seq 100); do size=$(stty size); [ "$size" = "40 123" ] && break; sleep 0.1; done
echo size $size
read word && echo read $word
exit 7`

// terminal runs kubectl on a terminal, which the program script creates: the container must get a terminal of the same size that accepts input.
// All other tests run kubectl without a terminal.
func terminal(t *testing.T, s namespace) {
	script, err := exec.LookPath("script")
	if err != nil {
		t.Fatalf("%v; it is in a package of hack/packages.txt", err)
	}
	for _, name := range both {
		cmd, line := startKubectl(t, s, "exec", "-it", name, "-c", "main", "--", "sh", "-c", onTerminal)
		command := make([]string, len(cmd.Args))
		for i, word := range cmd.Args {
			command[i] = "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
		}
		cmd.Path, cmd.Args = script, []string{"script", "-q", "-c", "stty rows 40 cols 123 && " + strings.Join(command, " ") + "; echo ended with $?", "/dev/null"}
		cmd.Env = append(os.Environ(), "SHELL=/bin/sh")
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		if text := line("the terminal", "terminal "); !regexp.MustCompile(`^terminal /dev/pts/\d+$`).MatchString(text) {
			t.Errorf("%s is not on a terminal: %q", name, text)
		}
		if text := line("the size of the terminal", "size "); text != "size 40 123" {
			t.Errorf("the terminal of %s has %q, want 40 rows of 123 columns", name, text)
		}
		if _, err := io.WriteString(in, "typed\r"); err != nil { // the key Enter
			t.Fatal(err)
		}
		line("the container reads the typed word", "read typed")
		if text := line("the exit code", "ended with "); text != "ended with 7" {
			t.Errorf("%s %q, want 7", name, text)
		}
		_ = in.Close()
	}
}

func copyFiles(t *testing.T, s namespace) {
	folder := t.TempDir()
	body := strings.Repeat("0123456789abcdef", 20000)
	if err := os.WriteFile(filepath.Join(folder, "up"), []byte(body), 0o600); err != nil {
		t.Fatal(err)
	}
	s.kubectl(t, "cp", filepath.Join(folder, "up"), "inmilan:/tmp/file", "-c", "main")
	s.kubectl(t, "cp", "inmilan:/tmp/file", filepath.Join(folder, "down"), "-c", "main")
	if back, err := os.ReadFile(filepath.Join(folder, "down")); err != nil || string(back) != body {
		t.Errorf("%d bytes came back (%v), want %d", len(back), err, len(body))
	}
}

func portForward(t *testing.T, s namespace) {
	_, line := startKubectl(t, s, "port-forward", "pod/inmilan", ":7001")
	address := strings.Fields(line("kubectl forwards", "Forwarding from 127.0.0.1:"))[2]
	body := strings.Repeat("x", 300000)
	for range 3 {
		answer, err := http.Post("http://"+address+"/", "text/plain", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		back, err := io.Copy(io.Discard, answer.Body)
		_ = answer.Body.Close()
		if answer.StatusCode != http.StatusOK || back != int64(len(body)) {
			t.Errorf("answer %s of %d bytes (%v), want %d", answer.Status, back, err, len(body))
		}
	}
	_, line = startKubectl(t, s, "port-forward", "pod/inmilan", ":9")
	address = strings.Fields(line("kubectl forwards", "Forwarding from 127.0.0.1:"))[2]
	if answer, err := http.Get("http://" + address); err == nil {
		_ = answer.Body.Close()
		t.Errorf("a port without a listener answers %s", answer.Status)
	}
}

func debug(t *testing.T, s namespace) {
	// repeated, because kubectl does not show output from before it is attached
	result := rome.TryKubectl(
		"", "-n", s.name, "debug", "inmilan", "--image="+env.ToolsImage, "--image-pull-policy=Never", "-c", "debugger", "--target=main",
		"--attach", "--", "sh", "-c", "for n in $(seq 8); do sleep 1; ps | grep 'line $i' || exit 1; done",
	)
	if result.Code != 0 || !strings.Contains(result.Out, "for i in 1 2 3") {
		t.Errorf("the ephemeral container does not show the processes of its target: %s", result)
	}
	s.wantLocal(
		t, podKind, "inmilan",
		"{spec: {ephemeralContainers: [{name: debugger}]}, status: {ephemeralContainerStatuses: [{name: debugger, state: {terminated: {exitCode: 0}}}]}}",
	)
	if output := s.kubectl(t, "logs", "inmilan", "-c", "debugger"); !strings.Contains(output, "for i in 1 2 3") {
		t.Errorf("its log is %q", output)
	}
}

func top(t *testing.T, s namespace) {
	// metrics-server collects every 15 s.
	for _, args := range [][]string{
		{"top", "pod", "inmilan", "--containers", "--no-headers"}, {"top", "pod", "--no-headers"}, {"top", "node", virtualNode, "--no-headers"},
	} {
		env.Eventually(t, env.Hang, "kubectl "+strings.Join(args, " ")+" shows the pod", func() (string, bool) {
			result := rome.TryKubectl("", append([]string{"-n", s.name}, args...)...)
			rows := map[string]bool{}
			for line := range strings.Lines(result.Out) {
				for _, field := range strings.Fields(line) {
					rows[field] = true
				}
			}
			want := map[string][]string{"inmilan": {"inmilan", "main", "reader", "server"}, "--no-headers": {"inrome", "inmilan"}, virtualNode: {virtualNode}}[args[2]]
			return result.String(), result.Code == 0 && !slices.ContainsFunc(want, func(one string) bool { return !rows[one] }) && !rows["<unknown>"]
		})
	}
}
