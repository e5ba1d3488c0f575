// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"liqo.io/liqo/playground/components/kube/internal/cloud/addons"
	"liqo.io/liqo/playground/components/kube/internal/cloud/settings"
	"liqo.io/liqo/playground/components/kube/internal/cloud/settingstest"
	"liqo.io/liqo/playground/components/kube/internal/cloud/volumes"
)

// configVariable makes the test binary the program under test. It needs a process of its own, as in
// production: the provisioner's library writes to client-go's global scheme, which the test's client reads.
const configVariable = "CLOUD_TEST_CONFIG"

func TestMain(m *testing.M) {
	if path := os.Getenv(configVariable); path != "" {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		config, err := settings.Load(path)
		if err == nil {
			err = run(ctx, config)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// startCloud runs the program under test until the test ends, which it must survive without an error.
func startCloud(t *testing.T, c *controlPlane, config settings.Config) {
	t.Helper()
	text, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	c.write(t, "cloud.json", string(text))
	var log bytes.Buffer
	process := exec.Command("/proc/self/exe")
	process.Env = append(os.Environ(), configVariable+"="+filepath.Join(c.directory, "cloud.json"))
	process.Stdout, process.Stderr = &log, &log
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = process.Process.Signal(syscall.SIGTERM)
		if err := process.Wait(); err != nil {
			t.Errorf("the program ended: %v", err)
		}
		if t.Failed() {
			t.Logf("its log:\n%s", &log)
		}
	})
}

// TestCloud runs the program against a real control plane and real network namespaces. The steps build on each other.
func TestCloud(t *testing.T) {
	nodes := wire(t)
	c := startControlPlane(t)
	config := settingstest.Example()
	config.Kubeconfig, config.Nodes, config.LoadBalancerPool = c.kubeconfig, nodes, "10.210.1.200-10.210.1.201"
	labelled := nodes["rome-control-plane"]
	labelled.Labels = map[string]string{"node-role.kubernetes.io/control-plane": ""}
	nodes["rome-control-plane"] = labelled
	config.Hollow[0].Count = 20
	startCloud(t, c, config)

	for _, step := range []struct {
		name string
		test func(*testing.T, *controlPlane, settings.Config)
	}{
		{"addons", testAddons},
		{"hollow nodes", testHollow},
		{"nodes", testNodes},
		{"load balancer", testLoadBalancer},
		{"local endpoints", testLocalEndpoints},
		{"volumes", testVolumes},
		{"ready", testReady},
		{"API server away", testAway},
		{"idle", testIdle},
	} {
		if !t.Run(step.name, func(t *testing.T) { step.test(t, c, config) }) {
			return
		}
	}
}

// versions returns the resource version of each addon that exists.
func versions(t *testing.T, c *controlPlane, all []addons.Manifest) map[string]string {
	t.Helper()
	plain := rest.CopyConfig(c.config)
	plain.ContentConfig = rest.ContentConfig{NegotiatedSerializer: scheme.Codecs.WithoutConversion()}
	client, err := rest.UnversionedRESTClientFor(plain)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, one := range all {
		body, err := client.Get().AbsPath(one.Path).SetHeader("Accept", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1").Do(t.Context()).Raw()
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		_, after, _ := strings.Cut(string(body), `"resourceVersion":"`)
		version, _, _ := strings.Cut(after, `"`)
		found[one.Path] = version
	}
	return found
}

func testAddons(t *testing.T, c *controlPlane, config settings.Config) {
	all, err := addons.Render(config)
	if err != nil {
		t.Fatal(err)
	}
	// Only the API service has a controller here that writes its status.
	var before map[string]string
	eventually(t, "all addons are there", func() bool { before = versions(t, c, all); return len(before) == len(all) })
	if err := addons.Apply(t.Context(), c.config, all); err != nil {
		t.Fatal(err)
	}
	for path, version := range versions(t, c, all) {
		if before[path] != version && !strings.Contains(path, "apiservices") {
			t.Errorf("%s changed when it was applied again: %s, then %s", path, before[path], version)
		}
	}
	dns, err := c.client.CoreV1().Services("kube-system").Get(t.Context(), "kube-dns", metav1.GetOptions{})
	if err != nil || dns.Spec.ClusterIP != config.DNSIP {
		t.Errorf("kube-dns is %v, error %v", dns.Spec.ClusterIP, err)
	}
	class, err := c.client.StorageV1().StorageClasses().Get(t.Context(), "standard", metav1.GetOptions{})
	if err != nil || !slices.Contains(class.AllowedTopologies[0].MatchLabelExpressions[0].Values, "rome-worker") {
		t.Errorf("storage class %v, error %v", class, err)
	}
}

func testHollow(t *testing.T, c *controlPlane, _ settings.Config) {
	count := func() int {
		list, err := c.client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{LabelSelector: hollowLabel + "=rome-hollow"})
		if err != nil {
			t.Fatal(err)
		}
		return len(list.Items)
	}
	eventually(t, "20 hollow nodes", func() bool { return count() == 20 })
	gone, err := c.client.CoreV1().Nodes().Get(t.Context(), "rome-hollow-7", metav1.GetOptions{})
	if err != nil || gone.Status.Allocatable.Cpu().String() != "32" {
		t.Fatalf("allocatable is %v, error %v", gone.Status.Allocatable, err)
	}
	if err := c.client.CoreV1().Nodes().Delete(t.Context(), gone.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a deleted hollow node is back", func() bool {
		now, err := c.client.CoreV1().Nodes().Get(t.Context(), gone.Name, metav1.GetOptions{})
		return err == nil && now.UID != gone.UID
	})
}

func setReady(t *testing.T, c *controlPlane, name string, status corev1.ConditionStatus) {
	t.Helper()
	patch := fmt.Sprintf(`{"status":{"conditions":[{"type":"Ready","status":%q,"reason":"Test","message":"as the test wants"}]}}`, status)
	if _, err := c.client.CoreV1().Nodes().Patch(t.Context(), name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
}

func testNodes(t *testing.T, c *controlPlane, config settings.Config) {
	for name := range config.Nodes {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}}}
		if _, err := c.client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		setReady(t, c, name, corev1.ConditionTrue)
	}
	start := time.Now()
	podCIDR := map[string]string{}
	for name := range config.Nodes {
		eventually(t, "pod CIDR of "+name, func() bool {
			node, err := c.client.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
			podCIDR[name] = node.Spec.PodCIDR
			return err == nil && podCIDR[name] != ""
		})
	}
	for name, node := range config.Nodes {
		eventually(t, "CNI file of "+name, func() bool {
			text, _ := os.ReadFile(filepath.Join(node.Root, cniFile))
			return bytes.Contains(text, []byte(podCIDR[name]))
		})
		for peer, other := range config.Nodes {
			want := route{via: other.Address}
			if want.to, _ = netip.ParsePrefix(podCIDR[peer]); peer == name {
				continue
			}
			eventually(t, "route from "+name, func() (has bool) {
				withKernel(t, node, func(k *kernel) {
					have, err := k.routes()
					has = err == nil && slices.Equal(have, []route{want})
				})
				return has
			})
		}
	}
	t.Logf("from pod CIDR to CNI files and routes of both nodes: at most %v", time.Since(start).Round(time.Millisecond))
	eventually(t, "role label", func() bool {
		node, err := c.client.CoreV1().Nodes().Get(t.Context(), "rome-control-plane", metav1.GetOptions{})
		_, has := node.Labels["node-role.kubernetes.io/control-plane"]
		return err == nil && has
	})
}

func testVolumes(t *testing.T, c *controlPlane, config settings.Config) {
	claims := c.client.CoreV1().PersistentVolumeClaims("default")
	claim := func(name, node string) {
		t.Helper()
		_, err := claims.Create(t.Context(), &corev1.PersistentVolumeClaim{
			// What the scheduler would write.
			ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"volume.kubernetes.io/selected-node": node}},
			Spec: corev1.PersistentVolumeClaimSpec{
				AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
			},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	claim("data", "rome-worker") // without class: standard is the default one
	var bound *corev1.PersistentVolumeClaim
	eventually(t, "claim is bound", func() bool {
		var err error
		bound, err = claims.Get(t.Context(), "data", metav1.GetOptions{})
		return err == nil && bound.Status.Phase == corev1.ClaimBound
	})
	directory := filepath.Join(config.Nodes["rome-worker"].Root, volumes.Directory, bound.Spec.VolumeName+"_default_data")
	if info, err := os.Stat(directory); err != nil || info.Mode().Perm() != 0o777 {
		t.Fatalf("directory %v, error %v", info, err)
	}
	if err := os.WriteFile(filepath.Join(directory, "kept"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := claims.Delete(t.Context(), "data", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "volume and directory are gone", func() bool {
		_, err := c.client.CoreV1().PersistentVolumes().Get(t.Context(), bound.Spec.VolumeName, metav1.GetOptions{})
		_, here := os.Stat(directory)
		return apierrors.IsNotFound(err) && os.IsNotExist(here)
	})
	claim("nowhere", "rome-hollow-3")
	balancerView{t, c, config.Nodes}.warned("PersistentVolumeClaim", "nowhere", `node "rome-hollow-3" has no disk`)
}

// testReady runs the program ready as the playground does.
func testReady(t *testing.T, c *controlPlane, _ settings.Config) {
	ready := func(arguments ...string) (out, problem string, code int) {
		command := exec.CommandContext(t.Context(), c.kube, append([]string{"ready", "--kubeconfig", c.kubeconfig}, arguments...)...)
		var stdout, stderr bytes.Buffer
		command.Stdout, command.Stderr = &stdout, &stderr
		_ = command.Run() // the exit code is checked instead
		return stdout.String(), stderr.String(), command.ProcessState.ExitCode()
	}
	last := func(out string) string {
		lines := strings.Split(strings.TrimSpace(out), "\n")
		return lines[len(lines)-1]
	}
	if out, problem, code := ready("--nodes", "2"); code != 0 || problem != "" ||
		!strings.HasSuffix(last(out), `"done":true}`) || !strings.Contains(out, `"nodes":{"ready":2,"total":22,"want":2}`) {
		t.Errorf("code %d, output %s, error %s", code, out, problem)
	}
	out, problem, code := ready("--nodes", "3", "--addons", "--timeout", "500ms")
	if code != 1 || !strings.Contains(problem, "2 of 3 nodes are Ready") ||
		!strings.Contains(problem, "coredns is not available") || strings.Count(problem, "\n") != 1 {
		t.Errorf("code %d, output %s, error %q", code, out, problem)
	}
	if !strings.Contains(out, `"addons":{"coredns":false,"metrics-api":false,"metrics-server":false}`) || !strings.HasSuffix(last(out), `"done":false}`) {
		t.Errorf("output %s", out)
	}
	if out, problem, code := ready("--once", "--nodes", "22"); code != 0 || problem != "" ||
		strings.Count(out, "\n") != 1 || !strings.Contains(out, `"done":false`) {
		t.Errorf("code %d, output %s, error %s", code, out, problem)
	}
}

// testAway deletes an addon, which only a new session applies again, then kills and starts the API server.
func testAway(t *testing.T, c *controlPlane, config settings.Config) {
	v := balancerView{t, c, config.Nodes}
	if err := c.client.CoreV1().ConfigMaps("kube-system").Delete(t.Context(), "kubeadm-config", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.killAPI(t)
	if out, err := exec.Command(c.kube, "ready", "--kubeconfig", c.kubeconfig, "--once").Output(); err == nil || !strings.HasPrefix(string(out), `{"api":false,`) {
		t.Errorf("without API server: output %s, error %v", out, err)
	}
	c.startAPI(t)
	c.awaitAPI(t)
	start := time.Now()
	eventually(t, "addons are applied again", func() bool {
		_, err := c.client.CoreV1().ConfigMaps("kube-system").Get(t.Context(), "kubeadm-config", metav1.GetOptions{})
		return err == nil
	})
	t.Logf("addons again %v after the API was back", time.Since(start).Round(time.Millisecond))
	v.has("local", "10.210.1.200")
	v.create("after", nil)
	v.has("after", "10.210.1.201")
}

// testIdle checks that the process sends no request while there is nothing to do.
func testIdle(t *testing.T, c *controlPlane, config settings.Config) {
	const window = 10 * time.Second
	var before map[string]int
	eventually(t, "the last events are written", func() bool {
		before = c.requests(t)
		idle(500 * time.Millisecond)
		return fmt.Sprint(before) == fmt.Sprint(c.requests(t))
	})
	idle(window)
	after := c.requests(t)
	// Prove that the process still works and that the log records its requests.
	v := balancerView{t, c, config.Nodes}
	v.remove("after")
	v.create("alive", nil)
	v.has("alive", "10.210.1.201")
	eventually(t, "its requests are in the audit log", func() bool { return c.requests(t)["patch"] == after["patch"]+1 })
	if fmt.Sprint(before) != fmt.Sprint(after) {
		t.Errorf("idle for %v, requests went from %v to %v", window, before, after)
	}
	t.Logf("requests of the whole test, none of them in %v of idling: %v", window, after)
}
