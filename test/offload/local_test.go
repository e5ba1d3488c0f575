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

// talking are pods that do the same, one in rome and one in milan: whatever kubectl says of one it says of the other.
const talking = `
apiVersion: v1
kind: Pod
metadata: {name: NAME, labels: {app: talking}}
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
  - {name: reader, image: "playground.local/tools:1", imagePullPolicy: Never, stdin: true, command: [sh, -c, "while read line; do echo heard $line; done; sleep infinity"]}
  - {name: server, image: "liqo.io/traffic:dev", imagePullPolicy: Never, args: [serve]}
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
metadata: {name: NAME-again}
spec:
  PLACE
  terminationGracePeriodSeconds: 1
  containers: [{name: main, image: "playground.local/tools:1", imagePullPolicy: Never, command: [sh, -c, "if [ -e /marks/one ]; then echo second; sleep infinity; fi; touch /marks/one; echo first; exit 1"], volumeMounts: [{name: marks, mountPath: /marks}]}]
  volumes: [{name: marks, emptyDir: {}}]
`

// both are the pods' names.
var both = []string{"inrome", "inmilan"}

// asIfLocal runs kubectl on pods of both clusters and compares what it says.
func asIfLocal(t *testing.T) {
	s := offloaded(t)
	for name, place := range map[string]string{
		"inrome":  "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: liqo.io/type, operator: DoesNotExist}]}]}}}",
		"inmilan": "nodeSelector: {liqo.io/type: virtual-node}",
	} {
		s.apply(t, strings.NewReplacer("NAME", name, "PLACE", place).Replace(talking))
	}
	s.running(t, both...)
	for _, name := range both {
		s.shows(t, podKind, name+"-fails", "status: {phase: Failed, initContainerStatuses: [{state: {terminated: {exitCode: 3}}}]}")
		s.shows(t, podKind, name+"-ends", "status: {phase: Succeeded}")
		s.shows(t, podKind, name+"-again", "status: {containerStatuses: [{restartCount: 1, ready: true}]}")
	}
	// Before one of the two has a container more.
	t.Run("same answers", func(t *testing.T) { sameAnswers(t, s) })
	for name, step := range map[string]func(*testing.T, space){
		"logs -f": followLogs, "attach": attach, "terminal": terminal, "cp": copies, "port-forward": portForward, "debug": debug, "top": top,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			step(t, s)
		})
	}
}

// moment is a time as --timestamps prints it.
var moment = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z`)

// own takes out of what was said what differs between two pods that are alike: names, and identifiers that are made up.
var own = regexp.MustCompile(`[0-9a-f]{64}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)

func alike(s space, name, text string) string {
	text = moment.ReplaceAllString(own.ReplaceAllString(text, "ID"), "TIME")
	return strings.NewReplacer(s.twin, "NS", s.name, "NS", name, "POD").Replace(text)
}

// sameAnswers compares exit codes, output and complaints.
func sameAnswers(t *testing.T, s space) {
	for _, command := range []string{
		"logs POD -c first", "logs POD -c main --tail=-1 --limit-bytes=20", "logs POD -c first --timestamps", "logs POD -c first --prefix", "logs POD --limit-bytes=20",
		"logs POD -c nobody", "logs POD -c main --previous", "logs POD-fails -c first", "logs POD-fails -c main", "logs POD-ends", "logs POD-ends --tail=2",
		"logs POD-ends --since=1h", "logs POD-ends --since-time=2038-01-01T00:00:00Z", "logs POD-ends -f", "logs POD-again --previous", "logs POD-again", "logs POD-again -f --previous",
		"exec POD -c main -- sh -c 'echo out; echo err >&2; exit 7'", "exec POD -c main -- nothing", "exec POD -c nobody -- true", "exec -i POD -c main -- cat", "exec POD -- echo default",
		"exec POD-ends -- true", "exec POD-fails -c main -- true", "exec POD -c main -- sh -c 'yes | head -c 300000 | sha256sum'", "exec -it POD -c main -- true",
		"attach POD-ends", "attach POD -c nobody", "port-forward POD-ends 0:80", "debug POD --image=playground.local/tools:1 -c main",
	} {
		t.Run(strings.ReplaceAll(command, "/", "_"), func(t *testing.T) {
			t.Parallel()
			var said [2]string
			for i, name := range both {
				args := []string{"-n", s.name}
				for _, word := range words(command) {
					args = append(args, strings.ReplaceAll(word, "POD", name))
				}
				was := rome.TryKubectl("some input\n", args...)
				said[i] = fmt.Sprintf("exit code %d\n%s\n%s", was.Code, alike(s, name, was.Out), alike(s, name, was.Err))
			}
			if said[0] != said[1] {
				t.Errorf("of a pod in rome:\n%s\nof one in milan:\n%s", said[0], said[1])
			}
		})
	}
	if said := s.kubectl(t, "logs", "inmilan", "-c", "main", "--tail=-1", "--limit-bytes=20"); said != "line 1\nline 2\nline 3"[:20] {
		t.Errorf("the first 20 bytes are %q", said)
	}
	if said := s.kubectl(t, "logs", "inmilan", "-c", "first", "--timestamps"); !moment.MatchString(said) || !strings.HasSuffix(said, "from the first") {
		t.Errorf("with a time: %q", said)
	}
	if said := s.kubectl(t, "logs", "-l", "app=talking", "-c", "first", "--prefix"); strings.Count(said, "from the first") != 2 {
		t.Errorf("of both by their label: %q", said)
	}
}

var quoted = regexp.MustCompile(`'[^']*'|\S+`)

// words parts a command as a shell does.
func words(command string) (all []string) {
	for _, word := range quoted.FindAllString(command, -1) {
		all = append(all, strings.Trim(word, "'"))
	}
	return all
}

// begin starts kubectl and returns what it prints, line by line.
func begin(t *testing.T, s space, args ...string) (cmd *exec.Cmd, lines func(within time.Duration, what, want string) string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	cmd = rome.Command(ctx, append([]string{"-n", s.name}, args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var complaint strings.Builder
	cmd.Stderr = &complaint
	all := make(chan string, 10000)
	t.Cleanup(func() {
		cancel()
		if cmd.Process == nil {
			return
		}
		for range all { // its end
		}
		_ = cmd.Wait()
	})
	return cmd, func(within time.Duration, what, want string) string {
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
		late := time.After(within)
		var seen []string
		for {
			select {
			case line, more := <-all:
				if strings.Contains(line, want) && more {
					return line
				}
				if !more {
					t.Fatalf("%s: it ended after %q, %s", what, seen, complaint.String())
				}
				seen = append(seen, line)
			case <-late:
				t.Fatalf("not within %v: %s; seen %q", within, what, seen)
			}
		}
	}
}

func followLogs(t *testing.T, s space) {
	_, line := begin(t, s, "logs", "inmilan", "-c", "main", "-f", "--tail=1")
	for range 4 {
		line(soon, "what a pod in milan says comes as it says it", "tick")
	}
}

func attach(t *testing.T, s space) {
	cmd, line := begin(t, s, "attach", "-i", "inmilan", "-c", "reader")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for i := 0; ; i++ { // what is said before the other end listens is lost on no machine, but what it answers is
			if _, err := fmt.Fprintf(in, "word %d\n", i); err != nil {
				return
			}
			<-time.After(200 * time.Millisecond)
		}
	}()
	line(soon, "the container hears and answers", "heard word")
	_ = in.Close()
	env.Eventually(t, soon, "it is in the log, too", func() (string, bool) {
		said := s.kubectl(t, "logs", "inmilan", "-c", "reader")
		return said, strings.Contains(said, "heard word")
	})
}

// onTerminal tells what it is run on, in a container. How large the terminal is kubectl says a moment after this has begun.
const onTerminal = `echo terminal $(tty)
for i in $(seq 100); do size=$(stty size); [ "$size" = "40 123" ] && break; sleep 0.1; done
echo size $size
read word && echo heard $word
exit 7`

// terminal: who has a terminal has one over there, too, of the same size, and types into it. Without one, kubectl goes on without, which all the
// other tests do: so this one runs it on a terminal that script makes.
func terminal(t *testing.T, s space) {
	script, err := exec.LookPath("script")
	if err != nil {
		t.Fatalf("%v; it is in a package of hack/packages.txt", err)
	}
	for _, name := range both {
		cmd, line := begin(t, s, "exec", "-it", name, "-c", "main", "--", "sh", "-c", onTerminal)
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
		if said := line(soon, "it says which terminal it is on", "terminal "); !regexp.MustCompile(`^terminal /dev/pts/\d+$`).MatchString(said) {
			t.Errorf("%s is not on a terminal: %q", name, said)
		}
		if said := line(soon, "it says how large that is", "size "); said != "size 40 123" {
			t.Errorf("the terminal of %s has %q, want 40 rows of 123 columns", name, said)
		}
		if _, err := io.WriteString(in, "typed\r"); err != nil { // as the key Enter
			t.Fatal(err)
		}
		line(soon, "it hears what is typed", "heard typed")
		if said := line(soon, "it ends", "ended with "); said != "ended with 7" {
			t.Errorf("of %s comes %q, want 7", name, said)
		}
		_ = in.Close()
	}
}

func copies(t *testing.T, s space) {
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

func portForward(t *testing.T, s space) {
	_, line := begin(t, s, "port-forward", "pod/inmilan", ":7001")
	said := line(10*time.Second, "it forwards", "Forwarding from 127.0.0.1:")
	address := strings.Fields(said)[2]
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
	_, line = begin(t, s, "port-forward", "pod/inmilan", ":9")
	address = strings.Fields(line(10*time.Second, "it forwards", "Forwarding from 127.0.0.1:"))[2]
	if answer, err := http.Get("http://" + address); err == nil {
		_ = answer.Body.Close()
		t.Errorf("a port where nobody listens answers %s", answer.Status)
	}
}

func debug(t *testing.T, s space) {
	said := rome.TryKubectl("", "-n", s.name, "debug", "inmilan", "--image="+env.ToolsImage, "--image-pull-policy=Never", "-c", "look", "--target=main", "--attach", "--", "sh", "-c", "for n in $(seq 8); do sleep 1; ps | grep 'line $i' || exit 1; done") // what is said before kubectl is attached is not heard
	if said.Code != 0 || !strings.Contains(said.Out, "for i in 1 2 3") {
		t.Errorf("the ephemeral container does not show the processes of its target: %s", said)
	}
	s.shows(t, podKind, "inmilan", "{spec: {ephemeralContainers: [{name: look}]}, status: {ephemeralContainerStatuses: [{name: look, state: {terminated: {exitCode: 0}}}]}}")
	if said := s.kubectl(t, "logs", "inmilan", "-c", "look"); !strings.Contains(said, "for i in 1 2 3") {
		t.Errorf("its log is %q", said)
	}
}

func top(t *testing.T, s space) {
	// metrics-server looks every 15 s.
	for _, args := range [][]string{{"top", "pod", "inmilan", "--containers", "--no-headers"}, {"top", "pod", "--no-headers"}, {"top", "node", virtualNode, "--no-headers"}} {
		env.Eventually(t, 75*time.Second, "kubectl "+strings.Join(args, " ")+" shows the pod", func() (string, bool) {
			said := rome.TryKubectl("", append([]string{"-n", s.name}, args...)...)
			rows := map[string]bool{}
			for line := range strings.Lines(said.Out) {
				for _, field := range strings.Fields(line) {
					rows[field] = true
				}
			}
			want := map[string][]string{"inmilan": {"inmilan", "main", "reader", "server"}, "--no-headers": {"inrome", "inmilan"}, virtualNode: {virtualNode}}[args[2]]
			return said.String(), said.Code == 0 && !slices.ContainsFunc(want, func(one string) bool { return !rows[one] }) && !rows["<unknown>"]
		})
	}
}
