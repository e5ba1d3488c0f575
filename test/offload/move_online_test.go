// SPDX-License-Identifier: Apache-2.0

package offload

import (
	"bufio"
	"context"
	"crypto/ed25519"
	cryptorand "crypto/rand"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"liqo.io/liqo/test/env"
)

// writing is an application that appends a number to a file ten times a second, and goes on with the next one after a restart. It writes the number to a file
// before, whose size and times never change, and when it starts, it reports whether that file is an old one.
const writing = `
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  serviceName: db
  selector: {matchLabels: {app: db}}
  volumeClaimTemplates: [{metadata: {name: data}, spec: {storageClassName: liqo, accessModes: [ReadWriteOnce], resources: {requests: {storage: 3Gi}}}}]
  template:
    metadata: {labels: {app: db}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - {name: main, image: "playground.local/tools:1", imagePullPolicy: Never, volumeMounts: [{name: data, mountPath: /data}],
         command: [sh, -c, "trap exit TERM; cd /data; i=$(tail -n 1 log 2>/dev/null || echo 0); h=$(cat hidden 2>/dev/null || echo 100000000);
       [ $((h-100000000-i)) = 0 ] || [ $((h-100000000-i)) = 1 ] || echo $h $i >>old;
       while true; do i=$((i+1)); echo $((100000000+i)) >hidden; touch -d @1000000000 hidden; echo $i >>log; sleep 0.1; done"]}
`

// TestMoveOnline moves 2 GiB with holes and 10,000 files while an application writes, measures it beside rsync by hand, and takes a move back.
func TestMoveOnline(t *testing.T) {
	if !*long {
		t.Skip("NOT RUN: it copies 2 GiB; use -long")
	}
	installedAndPeered(t)
	s := offload(t)
	s.apply(t, writing)
	s.running(t, "db-0")
	from := strings.TrimSpace(s.kubectl(t, "get", "pod", "db-0", "-o", "jsonpath={.spec.nodeName}"))
	to := virtualNode
	if from == to {
		to = rome.Nodes[len(rome.Nodes)-1].Name
	}
	s.kubectl(t, "exec", "db-0", "--", "sh", "-c", `set -e; cd /data; mkdir many; for i in $(seq 100); do mkdir many/$i; for j in $(seq 100); do echo $i-$j >many/$i/$j; done; done
		for i in 0 1 2 3 4 5 6 7; do dd if=/dev/urandom of=large bs=1M count=128 seek=$((i*256)) conv=notrunc 2>/dev/null; done; truncate -s 2G large; dd if=/dev/urandom of=patch bs=1M count=20 2>/dev/null; sync`)
	// The patch goes into the third MiB and those after it.
	sum := `cd /data; find many -type f | sort | xargs cat | cksum; dd if=large bs=1M count=2 2>/dev/null | cksum; dd if=large bs=1M skip=22 2>/dev/null | cksum; cksum <patch
		[ $(stat -c %b large) -le 2200000 ] && echo holes; find many | wc -l`
	before := s.kubectl(t, "exec", "db-0", "--", "sh", "-c", sum)

	history := s.history(t, "data-db-0")
	start := time.Now()
	command := rome.LiqoctlCommand(t.Context(), "move", "volume", "data-db-0", "-n", s.name, "--target-node", to, "--online", "--timeout", "9m")
	var output strings.Builder
	command.Stdout, command.Stderr = &output, &output
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, moveTime, "the first pass ends", func() (string, bool) {
		now := rome.TryKubectl("", "-n", s.name, "get", "volumemoves.storage.liqo.io", "data-db-0", "-o", "jsonpath={.status.passes}").Out
		return now, strings.Contains(now, "seconds")
	})
	s.kubectl(t, "exec", "db-0", "--", "dd", "if=/data/patch", "of=/data/large", "bs=1M", "seek=2", "conv=notrunc")
	if err := command.Wait(); err != nil {
		t.Fatal(err, output.String(), history())
	}
	took, steps := time.Since(start), history()
	t.Log(steps)
	first, later := int64(0), int64(0)
	for i, pass := range passes(t, steps) {
		if i == 0 {
			first = pass.Sent.Bytes
		} else {
			later += pass.Sent.Bytes
		}
	}
	if later*20 > first {
		t.Errorf("the passes after the first one sent %d bytes, the first one %d", later, first)
	}
	clusters.Measure("1 % changed after the first pass", "it sent %d bytes, all later ones %d (%.1f %%)", first, later, 100*float64(later)/float64(first))
	clusters.Measure("move of 2 GiB with holes and 10,000 files, --online", "%.1f s; %s", took.Seconds(), strings.TrimSpace(output.String()))
	s.nothingLeft(t)
	s.running(t, "db-0")
	if now := strings.TrimSpace(s.kubectl(t, "get", "pod", "db-0", "-o", "jsonpath={.spec.nodeName}")); now != to {
		t.Errorf("the pod runs on %s", now)
	}
	if after := s.kubectl(t, "exec", "db-0", "--", "sh", "-c", sum); after != before {
		t.Errorf("the volume has\n%s\nbefore:\n%s", after, before)
	}
	if result := rome.TryKubectl(
		"", "-n", s.name, "exec", "db-0", "--", "sh", "-c",
		"cd /data; dd if=large bs=1M skip=2 count=20 2>/dev/null | cmp - patch && [ ! -e old ]",
	); result.Code != 0 {
		t.Errorf("what was changed while it was copied is not there: %s", result)
	}
	// Every number that was written is there once, in order: nothing was lost, and no second copy was written.
	if gap := s.kubectl(t, "exec", "db-0", "--", "sh", "-c", `awk 'NR != $1 {print NR, $1; exit}' /data/log`); strings.TrimSpace(gap) != "" {
		t.Errorf("the log has a gap: %s", gap)
	}

	// A move that is taken back changes nothing.
	command = rome.LiqoctlCommand(t.Context(), "move", "volume", "data-db-0", "-n", s.name, "--target-node", from, "--online")
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, moveTime, "the move copies", func() (string, bool) {
		now := rome.TryKubectl("", "-n", s.name, "get", "volumemoves.storage.liqo.io", "data-db-0", "-o", "jsonpath={.status.phase}").Out
		return now, now == "Copying"
	})
	if result := s.move("data-db-0", "--cancel"); result.Code != 0 || !strings.Contains(result.Out, "taken back") {
		t.Errorf("cancel: %s", result)
	}
	_ = command.Wait() // it reports that the move was cancelled
	s.nothingLeft(t)
	if after := s.kubectl(t, "exec", "db-0", "--", "sh", "-c", sum); after != before {
		t.Errorf("after a move was taken back, the volume has\n%s\nbefore:\n%s", after, before)
	}
	s.byHand(t, to, from)
	s.kubectl(t, "scale", "statefulset", "db", "--replicas=0")
	s.kubectl(t, "wait", "--for=delete", "pod/db-0", "--timeout=60s")
	history = s.history(t, "data-db-0")
	start = time.Now()
	if result := s.move("data-db-0", "--target-node", from, "--timeout", "9m"); result.Code != 0 {
		t.Fatal(result)
	}
	took, steps = time.Since(start), history()
	t.Log(steps)
	clusters.Measure(
		"the same data moved in the same direction, without its application", "first pass %d s, all %.1f s", passes(t, steps)[0].Seconds,
		took.Seconds(),
	)
}

// passes are those of a history.
func passes(t *testing.T, history string) (all []pass) {
	t.Helper()
	for line := range strings.Lines(history) {
		_, text, _ := strings.Cut(strings.TrimSpace(line), " ")
		var status struct{ Passes []pass }
		if text == "" {
			continue
		}
		if err := json.Unmarshal([]byte(text), &status); err != nil {
			t.Fatal(err, line)
		}
		if len(status.Passes) > len(all) {
			all = status.Passes
		}
	}
	return all
}

// pass is a pass of a move, of its status.
type pass struct {
	Seconds int64
	Sent    struct{ Files, Bytes int64 }
}

// history follows a move, and returns what its status was, and when.
func (s namespace) history(t *testing.T, claim string) func() string {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	t.Cleanup(stop)
	var all strings.Builder
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			command := rome.Command(ctx, "get", "volumemoves.storage.liqo.io", "-n", s.name, "--watch", "-o", `jsonpath={.status}{"\n"}`)
			out, err := command.StdoutPipe()
			if err != nil || command.Start() != nil {
				return
			}
			for lines := bufio.NewScanner(out); lines.Scan(); {
				fmt.Fprintln(&all, time.Now().Format("15:04:05.000"), lines.Text())
			}
			_ = command.Wait()
		}
	}()
	return func() string { stop(); <-done; return all.String() }
}

// byHand copies the same data with the same engine and ciphers, between the same nodes, without a move.
func (s namespace) byHand(t *testing.T, from, to string) {
	t.Helper()
	key := func() (private, public string) {
		publicKey, privateKey, err := ed25519.GenerateKey(cryptorand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		block, err := ssh.MarshalPrivateKey(privateKey, "")
		if err != nil {
			t.Fatal(err)
		}
		line, err := ssh.NewPublicKey(publicKey)
		if err != nil {
			t.Fatal(err)
		}
		return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(block)), base64.StdEncoding.EncodeToString(ssh.MarshalAuthorizedKey(line))
	}
	private, public := key()
	const pods = `
apiVersion: v1
kind: Secret
metadata: {name: by-hand}
data: {private: PRIVATE, public: PUBLIC}
---
{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: by-hand}, spec: {storageClassName: liqo, accessModes: [ReadWriteOnce], resources: {requests: {storage: 3Gi}}}}
---
apiVersion: v1
kind: Pod
metadata: {name: receives}
spec:
  nodeSelector: {kubernetes.io/hostname: TO}
  terminationGracePeriodSeconds: 0
  volumes: [{name: data, persistentVolumeClaim: {claimName: by-hand}}, {name: keys, secret: {secretName: by-hand, defaultMode: 256}}]
  tolerations: [{operator: Exists}]
  containers:
  - {name: main, image: "localhost/liqo-mover:VERSION", imagePullPolicy: Never, volumeMounts: [{name: data, mountPath: /data}, {name: keys, mountPath: /keys}],
     readinessProbe: {tcpSocket: {port: 2222}, periodSeconds: 1}, securityContext: {runAsUser: 0},
     command: [/bin/dash, -c, "PREPARE; exec /usr/sbin/sshd -D -e -f /dev/null -h /keys/private -p 2222 -o AuthorizedKeysFile=/keys/public -o StrictModes=no -o UsePAM=no"]}
---
apiVersion: v1
kind: Pod
metadata: {name: sends}
spec:
  nodeSelector: {kubernetes.io/hostname: FROM}
  terminationGracePeriodSeconds: 0
  volumes: [{name: data, persistentVolumeClaim: {claimName: data-db-0}}, {name: keys, secret: {secretName: by-hand, defaultMode: 256}}]
  tolerations: [{operator: Exists}]
  containers:
  - {name: main, image: "localhost/liqo-mover:VERSION", imagePullPolicy: Never, volumeMounts: [{name: data, mountPath: /data}, {name: keys, mountPath: /keys}], securityContext: {runAsUser: 0},
     command: [/bin/dash, -c, "PREPARE; exec sleep 100000"]}
`
	image := strings.TrimSpace(rome.Kubectl(
		t, "-n", "liqo", "get", "deployment", "liqo-controller-manager", "-o", "jsonpath={.spec.template.spec.containers[0].image}",
	))
	prepare := `mkdir -p /run/sshd /root /tmp; printf 'root:x:0:0:root:/root:/bin/dash\\nsshd:x:100:65534:sshd:/run/sshd:/bin/false\\n' ` +
		`>/etc/passwd; printf 'root:x:0:\\nnogroup:x:65534:\\n' >/etc/group`
	s.apply(t, strings.NewReplacer(
		"PRIVATE", private, "PUBLIC", public, "TO", to, "FROM", from, "VERSION", image[strings.LastIndex(image, ":")+1:], "PREPARE", prepare,
	).Replace(pods))
	s.running(t, "receives", "sends")
	address := strings.TrimSpace(s.kubectl(t, "get", "pod", "receives", "-o", "jsonpath={.status.podIP}"))
	shell := "ssh -F none -p 2222 -i /keys/private -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR"
	start := time.Now()
	rsync := []string{
		"exec", "sends", "--", "rsync", "-aHAXS", "--numeric-ids", "--inplace", "--delete", "--exclude=/lost+found", "--rsh=" + shell, "/data/",
		"root@" + address + ":/data/",
	}
	s.kubectl(t, rsync...)
	once := time.Since(start)
	s.kubectl(t, append(rsync, "--checksum", "--dry-run")...)
	clusters.Measure("the same data with rsync by hand", "first pass %.1f s, with a comparison of all files %.1f s", once.Seconds(), time.Since(start).Seconds())
	s.kubectl(t, "delete", "pod", "receives", "sends", "--grace-period=0", "--force")
	s.kubectl(t, "wait", "--for=delete", "pod/receives", "pod/sends", "--timeout=60s")
}
