// SPDX-License-Identifier: Apache-2.0

// Package tenants tests what one consumer of a provider can do to the others: it fills what it may fill, as fast as it can, while another consumer works.
// Durations are recorded; only an outage fails the test.
//
// It brings the playground's scenario three-overlap up and takes it down. Run it with: make test-long SUITE=tenants
package tenants

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/test/env"
)

var (
	keep    = flag.Bool("keep", false, "use the clusters that are up, and leave them up (for work on these tests)")
	objects = flag.Int("objects", 100_000, "how many objects the hostile consumer tries to create")
	long    = flag.Bool("long", false, "TestAttackNH5 writes for five minutes instead of one")
	only    = flag.String("only", "", "try only this resource, such as shadowpods (for work on these tests)")

	clusters                *env.Env
	hostile, provider, good *env.Cluster
)

// outage is what a user would call one.
const outage = 30 * time.Second

func TestMain(m *testing.M) {
	env.Main(m, "three-overlap", keep, func(e *env.Env) error {
		clusters, hostile, provider, good = e, e.Clusters[0], e.Clusters[1], e.Clusters[2]
		return nil
	})
}

const namespace = "shop"

// TestAttackH5: a consumer that tries to create 100,000 objects is stopped by its bounds, and the pods of another consumer start as before.
func TestAttackH5(t *testing.T) {
	defer clusters.Step(t)()
	peered(t)
	for _, consumer := range []*env.Cluster{hostile, good} {
		offload(t, consumer)
	}
	quiet := starts(t, "quiet", 7)
	latency := answers(t, 50)
	clusters.Measure("no attack", "pod of another consumer Ready after %s (median of %d), answer of the provider's API server in %s (median of %d)",
		median(quiet), len(quiet), median(latency), len(latency))

	a := newAttack(t)
	began := time.Now()
	a.run(t)
	env.Eventually(t, env.Hang, "the attack has begun", func() (string, bool) { return fmt.Sprint(a.tried.Load()), a.tried.Load() > 500 })
	ratio := func(now []time.Duration) float64 { return median(now).Seconds() / median(quiet).Seconds() }
	// First the pods start that the hostile consumer is granted, on the nodes of the others. Most of the attack comes after that.
	first := starts(t, "first", 7)
	env.Eventually(t, time.Hour, "half of the attack is over", func() (string, bool) { return fmt.Sprint(a.tried.Load()), a.tried.Load() > int64(*objects/2) })
	busy := starts(t, "half-way", 7)
	latency = answers(t, 50)
	clusters.Measure("under attack", "pod of another consumer Ready after %s half-way (%.2f times as long), %s in the first seconds (%.2f "+
		"times; medians of %d), answer of the provider's API server in %s (median of %d)",
		median(busy), ratio(busy), median(first), ratio(first), len(busy), median(latency), len(latency))
	if a.tried.Load() >= int64(*objects) {
		t.Error("the attack was over before the measurement; try more objects")
	}
	a.wait()
	took := time.Since(began)
	clusters.Measure(
		"attack", "%d objects tried in %s (%.0f a second); %s", a.tried.Load(), took.Round(time.Second), float64(a.tried.Load())/took.Seconds(),
		a.outcome(),
	)
	if slowest := slices.Max(append(first, busy...)); slowest > outage {
		t.Errorf("a pod of another consumer took %s to start", slowest)
	}

	held := a.held(t)
	clusters.Measure("the hostile consumer holds", "%s", held.text)
	if held.total > 20_000 { // the bounds of a peer are together less than that, since those with text fill its bytes
		t.Errorf("the hostile consumer holds %d objects after trying %d", held.total, *objects)
	}
	// What stays does not disturb either.
	after := starts(t, "after", 3)
	clusters.Measure("after the attack", "pod of another consumer Ready after %s (median of %d)", median(after), len(after))
	env.Healthy(t, provider)
	for _, consumer := range []*env.Cluster{hostile, good} {
		consumer.Liqoctl(t, "unoffload", "namespace", namespace)
		consumer.Liqoctl(t, "unpeer", "out-of-band", provider.Name)
	}
}

// peered makes both consumers peers of the provider.
func peered(t *testing.T) {
	t.Helper()
	for _, c := range clusters.Clusters {
		c.Installed(t)
	}
	// By default a consumer is granted nearly everything that is free, also the pods of a node that its pods do not tolerate. Then nothing is left for others.
	provider.Liqoctl(
		t, "install", "--cluster-name", provider.Name, "--set", "controllerManager.config.resourceSharingPercentage=20", "--set",
		"peers.ingresses.hosts={*.rome.example}",
	)
	for _, consumer := range []*env.Cluster{hostile, good} {
		env.Peered(t, consumer, provider)
	}
}

func offload(t *testing.T, consumer *env.Cluster) {
	t.Helper()
	_ = consumer.TryKubectl("", "create", "namespace", namespace)
	consumer.Liqoctl(t, "offload", "namespace", namespace, "--pod-offloading-strategy", "Remote")
}

// starts measures how long offloaded pods of the good consumer take from their creation until they are Ready, one after another. It records the median
// until a node has the pod: what follows is the kubelet's work.
func starts(t *testing.T, name string, count int) (all []time.Duration) {
	t.Helper()
	var assigned []time.Duration
	for i := range count {
		pod := fmt.Sprintf("%s-%d", name, i)
		scheduled := provider.Watch(t, &corev1.PodList{}, "", func(object client.Object) bool {
			one, is := object.(*corev1.Pod)
			return is && one.Name == pod && one.Spec.NodeName != ""
		})
		ready := good.Watch(t, &corev1.PodList{}, namespace, func(object client.Object) bool {
			one, is := object.(*corev1.Pod)
			return is && one.Name == pod && env.Condition(one, corev1.PodReady) == corev1.ConditionTrue
		})
		began := time.Now()
		err := good.API.Create(t.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: pod},
			Spec: corev1.PodSpec{
				TerminationGracePeriodSeconds: new(int64),
				Containers: []corev1.Container{
					{Name: "server", Image: "localhost/traffic:dev", ImagePullPolicy: corev1.PullNever, Args: []string{"serve"}},
				},
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		assigned = append(assigned, scheduled.Wait(t, env.Hang, "a node of the provider has pod "+pod).Sub(began).Round(time.Millisecond))
		all = append(all, ready.Wait(t, env.Hang, "pod "+pod+" of another consumer is Ready").Sub(began).Round(time.Millisecond))
	}
	clusters.Measure(name+": a node has the pod", "%s after its creation (median of %d)", median(assigned), count)
	return all
}

// answers measures how long the provider's administrator waits for an answer of the API server.
func answers(t *testing.T, count int) (all []time.Duration) {
	t.Helper()
	for range count {
		began := time.Now()
		var list corev1.NodeList
		if err := provider.API.List(t.Context(), &list); err != nil {
			t.Fatal(err)
		}
		all = append(all, time.Since(began).Round(100*time.Microsecond))
	}
	return all
}

func median(all []time.Duration) time.Duration {
	return slices.Sorted(slices.Values(all))[len(all)/2]
}

// attack creates objects with the identity of the hostile consumer.
type attack struct {
	client         *http.Client
	host           string
	id             string // of the hostile consumer
	tenant, remote string // its namespaces in the provider
	tried          atomic.Int64

	mu       sync.Mutex
	answered map[int]int // status codes
	working  sync.WaitGroup
}

// newAttack attacks in the one remote namespace of the hostile consumer.
func newAttack(t *testing.T) *attack {
	t.Helper()
	a := newAttacker(t)
	all := a.namespaces(t)
	if len(all) != 1 {
		t.Fatalf("the hostile consumer has the remote namespaces %v, want one", all)
	}
	a.remote = all[0]
	return a
}

// namespaces are the remote namespaces of the hostile consumer.
func (a *attack) namespaces(t *testing.T) (names []string) {
	t.Helper()
	var all corev1.NamespaceList
	// The cleanup asks as well, when the test's own context has ended.
	if err := provider.API.List(context.Background(), &all, client.MatchingLabels{labels.RemoteClusterID: a.id}); err != nil {
		t.Fatal(err)
	}
	for _, one := range all.Items {
		names = append(names, one.Name)
	}
	return names
}

// newAttacker has the identity of the hostile consumer.
func newAttacker(t *testing.T) *attack {
	t.Helper()
	fc := hostile.Foreign(t, provider)
	var identities corev1.SecretList
	if err := hostile.API.List(
		t.Context(), &identities, client.InNamespace(fc.Status.TenantNamespace.Local), client.MatchingLabels{labels.LocalIdentity: "true"},
	); err != nil || len(identities.Items) != 1 {
		t.Fatalf("%d identities, %v", len(identities.Items), err)
	}
	config := rest.AnonymousClientConfig(provider.Config())
	config.BearerToken = string(identities.Items[0].Data["token"])
	config.QPS = -1
	http1, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	return &attack{
		client: http1, id: hostile.ID(t), host: strings.TrimSuffix(config.Host, "/"), tenant: string(identities.Items[0].Data["namespace"]),
		answered: map[int]int{},
	}
}

// workers is more than the API server lets one user have at the same time.
const workers = 32

// run tries all objects in the background.
func (a *attack) run(t *testing.T) {
	ctx := t.Context()
	kinds := slices.DeleteFunc(a.kinds(), func(one filler) bool { return !strings.HasSuffix(one.path, *only) })
	for range workers {
		a.working.Go(func() {
			for {
				number := a.tried.Add(1)
				if number > int64(*objects) || ctx.Err() != nil {
					a.tried.Add(-1)
					return
				}
				kind := kinds[number%int64(len(kinds))]
				a.count(a.post(ctx, kind.path, kind.body(fmt.Sprintf("filler-%d", number))))
			}
		})
	}
}

func (a *attack) wait() { a.working.Wait() }

func (a *attack) count(status int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.answered[status]++
}

// outcome is how often each status code was answered.
func (a *attack) outcome() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var all []string
	for _, code := range slices.Sorted(maps.Keys(a.answered)) {
		all = append(all, fmt.Sprintf("%d of status %d", a.answered[code], code))
	}
	return strings.Join(all, ", ")
}

// post returns the status code; zero if there was no answer.
func (a *attack) post(ctx context.Context, path, body string) int {
	status, _ := a.call(ctx, http.MethodPost, path, body)
	return status
}

// call returns the status code and the beginning of the answer; zero if there was none.
func (a *attack) call(ctx context.Context, method, path, body string) (status int, answer string) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, a.host+path, strings.NewReader(body))
	if err != nil {
		return 0, err.Error()
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := a.client.Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(response.Body, 1000)) // the status code counts
	_, _ = io.Copy(io.Discard, response.Body)
	return response.StatusCode, string(text)
}

// filler is one kind of object that a peer may create.
type filler struct {
	path string
	body func(name string) string
}

// own are the labels of what a consumer writes, in JSON.
func (a *attack) own() []byte {
	// strings cannot fail
	own, _ := json.Marshal(map[string]string{labels.Replicated: "true", labels.Replication: "false", labels.Origin: a.id, labels.OriginID: a.id})
	return own
}

func (a *attack) kinds() []filler {
	remote := "/namespaces/" + a.remote + "/"
	own := a.own()
	object := func(version, kind, rest string) func(string) string {
		return func(name string) string {
			return fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"name":%q,"labels":%s}%s}`, version, kind, name, own, rest)
		}
	}
	text, _ := json.Marshal(strings.Repeat("x", 64<<10)) // a string cannot fail
	pod := `,"spec":{"pod":{"containers":[{"name":"c","image":"localhost/traffic:dev"}]}}`
	return []filler{
		{"/api/v1" + remote + "configmaps", object("v1", "ConfigMap", `,"data":{"a":`+string(text)+`}`)},
		{"/api/v1" + remote + "secrets", object("v1", "Secret", `,"stringData":{"a":`+string(text)+`}`)},
		{"/api/v1" + remote + "services", object("v1", "Service", `,"spec":{"ports":[{"port":80}]}`)},
		{"/apis/networking.k8s.io/v1" + remote + "ingresses", object(
			"networking.k8s.io/v1", "Ingress",
			`,"spec":{"rules":[{"host":"a.rome.example","http":{"paths":[{"path":"/","pathType":"Prefix","backend":{"service":{"name":"a","port":{"number":80}}}}]}}]}`,
		)},
		{"/apis/virtualkubelet.liqo.io/v1alpha1" + remote + "shadowpods", object("virtualkubelet.liqo.io/v1alpha1", "ShadowPod", pod)},
		{
			"/apis/virtualkubelet.liqo.io/v1alpha1" + remote + "shadowendpointslices",
			object("virtualkubelet.liqo.io/v1alpha1", "ShadowEndpointSlice", `,"spec":{"template":{"endpoints":[],"addressType":"IPv4"}}`),
		},
		{"/apis/sharing.liqo.io/v1alpha1/namespaces/" + a.tenant + "/resourceslices", object("sharing.liqo.io/v1alpha1", "ResourceSlice", `,"spec":{}`)},
		{
			"/apis/virtualkubelet.liqo.io/v1alpha1/namespaces/" + a.tenant + "/namespacemaps",
			object("virtualkubelet.liqo.io/v1alpha1", "NamespaceMap", `,"spec":{"desiredMapping":{}}`),
		},
	}
}

// holding is what the hostile consumer has in the provider.
type holding struct {
	total int
	text  string
}

func (a *attack) held(t *testing.T) (h holding) {
	t.Helper()
	var parts []string
	for _, kind := range a.kinds() {
		name := kind.path[strings.LastIndex(kind.path, "/")+1:]
		at := cmp.Or(map[bool]string{true: a.tenant}[strings.Contains(kind.path, a.tenant)], a.remote)
		count := len(strings.Fields(provider.Kubectl(t, "get", name, "-n", at, "-o", "name")))
		h.total += count
		parts = append(parts, fmt.Sprintf("%d %s", count, name))
	}
	h.text = strings.Join(parts, ", ")
	return h
}
