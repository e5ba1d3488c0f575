// SPDX-License-Identifier: Apache-2.0

package offload

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/apis/labels"
	offloadingv1alpha1 "liqo.io/liqo/apis/offloading/v1alpha1"
	"liqo.io/liqo/test/env"
)

// grown is the state after one step of growth: how many there are, what it took to get there, and what it costs to stay there.
type grown struct {
	Count   int
	Seconds float64 // since the step before
	CPU     cpu     // meanwhile
	Idle    cpu     // of restFor without a change
	Memory  memory
}

// restFor is how long processor time is counted without a change of the workload, after each step.
const restFor = 20 * time.Second

// longest bounds one step: it is a guard against hanging.
const longest = 20 * time.Minute

// growth adds pods to one virtual node, and then offloaded namespaces, step by step.
func (b *bench) growth(t *testing.T) {
	b.results.Growth = map[string][]grown{}
	b.grow(t, "pods", *grows, b.scale)
	start := time.Now()
	b.scale(t, 0)
	t.Logf("all pods are gone after %.0f s", time.Since(start).Seconds())
	made := 0
	b.grow(t, "namespaces", *spaces, func(t *testing.T, n int) {
		t.Helper()
		for ; made < n; made++ {
			b.addNamespace(t, made)
		}
		b.waitNamespaces(t, n)
	})
	for i := range made {
		_ = b.consumer.API.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: spaceName(i)}})
	}
	b.waitNamespaces(t, 0)
}

// grow measures each step to a count of the list, and the state before the first one.
func (b *bench) grow(t *testing.T, what, counts string, to func(*testing.T, int)) {
	t.Helper()
	steps := []int{0}
	for word := range strings.SplitSeq(counts, ",") {
		n, err := strconv.Atoi(word)
		if err != nil || n <= steps[len(steps)-1] {
			t.Fatalf("%s: %q is no number that is larger than the one before", what, word)
		}
		steps = append(steps, n)
	}
	for _, n := range steps {
		before, from := used(t), time.Now()
		if n > 0 {
			to(t, n)
		}
		g := grown{Count: n, Seconds: time.Since(from).Seconds(), CPU: used(t).since(before)}
		idleFor(settle)
		before = used(t)
		idleFor(restFor)
		g.Idle, g.Memory = used(t).since(before), memoryNow(t)
		b.results.Growth[what] = append(b.results.Growth[what], g)
		t.Logf("%d %s: after %.1f s; CPU %v; %v without a change: %v\n%v", n, what, g.Seconds, g.CPU.By, restFor, g.Idle.By, g.Memory)
	}
}

// scale gives the Deployment of growth as many pods, and waits until all are Ready, or gone.
func (b *bench) scale(t *testing.T, n int) {
	t.Helper()
	d := deployment(offloaded, "growth", burst{Pods: n, Offloaded: true})
	switch err := b.consumer.API.Get(t.Context(), client.ObjectKeyFromObject(d), &appsv1.Deployment{}); {
	case client.IgnoreNotFound(err) != nil:
		t.Fatal(err)
	case err != nil:
		if err := b.consumer.API.Create(t.Context(), d); err != nil {
			t.Fatal(err)
		}
	default:
		patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, n))
		if err := b.consumer.API.Patch(t.Context(), d, patch); err != nil {
			t.Fatal(err)
		}
	}
	env.Eventually(t, longest, fmt.Sprint(n, " pods are Ready, and no other is left"), func() (string, bool) {
		var now appsv1.Deployment
		if err := b.consumer.API.Get(t.Context(), client.ObjectKeyFromObject(d), &now); err != nil {
			return err.Error(), false
		}
		left := 0
		if n == 0 {
			var remote metav1.PartialObjectMetadataList
			remote.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PodList"))
			if err := b.provider.API.List(t.Context(), &remote, client.InNamespace(offloaded)); err != nil {
				return err.Error(), false
			}
			left = len(remote.Items)
		}
		idleFor(time.Second) // polls slowly, to cost little beside what is measured
		return fmt.Sprint(now.Status.ReadyReplicas, " of ", now.Status.Replicas, " pods are Ready, ", left, " are left at the provider"),
			int(now.Status.ReadyReplicas) == n && int(now.Status.Replicas) == n && left == 0
	})
}

func spaceName(i int) string { return fmt.Sprintf("growth-%d", i) }

// addNamespace offloads a namespace that has a ConfigMap.
func (b *bench) addNamespace(t *testing.T, i int) {
	t.Helper()
	meta := metav1.ObjectMeta{Namespace: spaceName(i), Name: offloadingv1alpha1.NamespaceOffloadingName}
	for _, object := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: spaceName(i)}},
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: spaceName(i), Name: canary}},
		&offloadingv1alpha1.NamespaceOffloading{ObjectMeta: meta, Spec: offloadingv1alpha1.NamespaceOffloadingSpec{
			NamespaceMappingStrategy: offloadingv1alpha1.DefaultName, PodOffloadingStrategy: offloadingv1alpha1.PodsLocalAndRemote,
		}},
	} {
		if err := b.consumer.API.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
}

// waitNamespaces waits until that many namespaces of growth are at the provider, each with its ConfigMap.
func (b *bench) waitNamespaces(t *testing.T, n int) {
	t.Helper()
	env.Eventually(t, longest, fmt.Sprint(n, " namespaces are offloaded"), func() (string, bool) {
		var remote corev1.NamespaceList
		var maps corev1.ConfigMapList
		if err := b.provider.API.List(t.Context(), &remote, client.HasLabels{labels.RemoteClusterID}); err != nil {
			return err.Error(), false
		}
		if err := b.provider.API.List(t.Context(), &maps, client.MatchingLabels{labels.Origin: b.consumer.ID(t)}); err != nil {
			return err.Error(), false
		}
		have, filled := 0, 0
		for _, one := range remote.Items {
			if strings.HasPrefix(one.Name, "growth-") {
				have++
			}
		}
		for _, one := range maps.Items {
			if strings.HasPrefix(one.Namespace, "growth-") && one.Name == canary {
				filled++
			}
		}
		idleFor(time.Second)
		return fmt.Sprint(have, " namespaces, ", filled, " ConfigMaps"), have == n && filled == n
	})
}

// line fits y = constant + slope * x by least squares.
func line(x, y []float64) (constant, slope float64) {
	n := float64(len(x))
	var sx, sy, sxx, sxy float64
	for i := range x {
		sx, sy, sxx, sxy = sx+x[i], sy+y[i], sxx+x[i]*x[i], sxy+x[i]*y[i]
	}
	if d := n*sxx - sx*sx; d != 0 {
		slope = (n*sxy - sx*sy) / d
	}
	return (sy - slope*sx) / n, slope
}

// growthTable has the steps, and for each process a line through its anonymous memory.
func (r *results) growthTable() string {
	var text strings.Builder
	for _, what := range slices.Sorted(maps.Keys(r.Growth)) {
		steps := r.Growth[what]
		fmt.Fprintf(&text, "\n| %s | after (s) | CPU of Liqo (s) | all CPU (s) | CPU of Liqo without a change (%% of a core) | memory of Liqo, "+
			"RSS / anonymous / PSS (MiB) |\n|---|---|---|---|---|---|\n", what)
		for _, g := range steps {
			fmt.Fprintf(
				&text, "| %d | %.0f | %.1f | %.1f | %.1f | %.0f / %.0f / %.0f |\n", g.Count, g.Seconds, g.CPU.Liqo, g.CPU.Machine,
				100*g.Idle.Liqo/restFor.Seconds(), g.Memory.RSS, g.Memory.Anonymous, g.Memory.PSS,
			)
		}
		last := steps[len(steps)-1]
		fmt.Fprintf(
			&text,
			"\n| process, with %d %s | RSS / anonymous (MiB) | anonymous memory | CPU without a change (%% of a core) |\n|---|---|---|---|\n",
			last.Count, what,
		)
		for _, label := range slices.Sorted(maps.Keys(last.Memory.By)) {
			var x, y []float64
			for _, g := range steps {
				x, y = append(x, float64(g.Count)), append(y, g.Memory.By[label][1])
			}
			constant, slope := line(x, y)
			fmt.Fprintf(
				&text, "| %s | %.0f / %.0f | %.0f MiB + %.1f KiB each | %.1f |\n", label, last.Memory.By[label][0], last.Memory.By[label][1], constant,
				1024*slope, 100*last.Idle.By[label]/restFor.Seconds(),
			)
		}
	}
	return text.String()
}

func TestLine(t *testing.T) {
	if constant, slope := line([]float64{0, 1, 2}, []float64{3, 5, 7}); constant != 3 || slope != 2 {
		t.Errorf("%g + %g x, want 3 + 2 x", constant, slope)
	}
	if constant, slope := line([]float64{4}, []float64{3}); constant != 3 || slope != 0 {
		t.Errorf("%g + %g x, want 3", constant, slope)
	}
}
