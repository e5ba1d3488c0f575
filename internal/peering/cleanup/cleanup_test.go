// SPDX-License-Identifier: Apache-2.0

package cleanup

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	offloadingv1alpha1 "liqo.io/liqo/apis/offloading/v1alpha1"
	storagev1alpha1 "liqo.io/liqo/apis/storage/v1alpha1"
	chart "liqo.io/liqo/deployments/liqo"
	"liqo.io/liqo/internal/kube/crds"
	"liqo.io/liqo/internal/kube/kubetest"
)

const namespace = "liqo"

// env is an API server with Liqo's kinds, an installed authentication service, and an identity with the rights of the job.
type env struct {
	client.WithWatch
	job *rest.Config
}

func newEnv(ctx context.Context, t *testing.T) env {
	t.Helper()
	admin := kubetest.Cluster(t)
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, appsv1.AddToScheme, rbacv1.AddToScheme, discoveryv1alpha1.AddToScheme, netv1alpha1.AddToScheme,
		offloadingv1alpha1.AddToScheme, storagev1alpha1.AddToScheme,
	} {
		must(t, add(scheme))
	}
	c, err := client.NewWithWatch(admin, client.Options{Scheme: scheme})
	must(t, err)
	definitions, err := crds.Load(chart.FS)
	must(t, err)
	plain, err := client.New(admin, client.Options{Scheme: withCRDs(t)})
	must(t, err)
	must(t, crds.Apply(ctx, plain, definitions, func(string) {}))

	must(t, c.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}))
	pod := map[string]string{"app": auth}
	must(t, c.Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: auth, Namespace: namespace},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(2)), Selector: &metav1.LabelSelector{MatchLabels: pod},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: pod}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "b"}}}},
		},
	}))
	grant(ctx, t, c, "job")
	job := rest.CopyConfig(admin)
	job.Impersonate.UserName = "job"
	return env{c, job}
}

func (w env) peer(ctx context.Context, t *testing.T, name string) {
	t.Helper()
	must(t, w.Create(ctx, &discoveryv1alpha1.ForeignCluster{
		ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: []string{labels.FinalizerPeer}},
		Spec:       discoveryv1alpha1.ForeignClusterSpec{OutgoingPeeringEnabled: discoveryv1alpha1.PeeringYes, ForeignAuthURL: "https://peer.example.org"},
	}))
	must(t, w.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "liqo-tenant-" + name, Labels: tenants}}))
	agreed := tunnel(name)
	must(t, w.Create(ctx, &agreed))
}

// controllers does what the controller manager and Kubernetes would: it reports directions down once they are
// unwanted, and takes the tenant away when the foreign cluster is deleted.
func (w env) controllers(ctx context.Context) error {
	watch, err := w.Watch(ctx, &discoveryv1alpha1.ForeignClusterList{})
	if err != nil {
		return err
	}
	defer watch.Stop()
	for event := range watch.ResultChan() {
		peer, ok := event.Object.(*discoveryv1alpha1.ForeignCluster)
		if !ok || event.Type == "DELETED" {
			continue
		}
		before := peer.DeepCopy()
		switch {
		case peer.DeletionTimestamp != nil:
			tenant := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "liqo-tenant-" + peer.Name}}
			if err := client.IgnoreNotFound(w.Delete(ctx, tenant)); err != nil {
				return err
			}
			// No controller of Kubernetes runs here, so the namespace is emptied by hand.
			if err := w.Get(ctx, client.ObjectKeyFromObject(tenant), tenant); err == nil {
				tenant.Spec.Finalizers = nil
				if err := w.SubResource("finalize").Update(ctx, tenant); err != nil {
					return err
				}
			}
			peer.Finalizers = nil
			if err := client.IgnoreNotFound(w.Patch(ctx, peer, client.MergeFrom(before))); err != nil {
				return err
			}
			agreed := tunnel(peer.Name)
			err = w.Delete(ctx, &agreed)

		case peer.Status.ObservedGeneration != peer.Generation:
			status := discoveryv1alpha1.StatusEstablished
			if peer.Spec.OutgoingPeeringEnabled == discoveryv1alpha1.PeeringNo {
				status = discoveryv1alpha1.StatusNone
			}
			peer.Status.ObservedGeneration = peer.Generation
			peer.Status.PeeringConditions = []discoveryv1alpha1.PeeringCondition{
				{Type: discoveryv1alpha1.OutgoingPeering, Status: status, LastTransitionTime: metav1.Now()},
			}
			err = w.Status().Patch(ctx, peer, client.MergeFrom(before))
		}
		if client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	return nil
}

func (w env) replicas(ctx context.Context, t *testing.T) int32 {
	t.Helper()
	var live appsv1.Deployment
	must(t, w.Get(ctx, client.ObjectKey{Namespace: namespace, Name: auth}, &live))
	return *live.Spec.Replicas
}

func TestRun(t *testing.T) {
	w := newEnv(t.Context(), t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // a guard against hanging; the start of the API server has its own
	defer cancel()
	w.peer(ctx, t, "milan")
	w.peer(ctx, t, "turin")
	var out bytes.Buffer
	slept := 0
	o := Options{Namespace: namespace, Timeout: time.Second, Out: &out, sleep: func(_ context.Context, d time.Duration) {
		slept++
		var tunnels netv1alpha1.TunnelEndpointList
		must(t, w.List(ctx, &tunnels))
		if d != agentTime || len(tunnels.Items) > 0 {
			t.Errorf("waits %s for the agents while there are %d tunnels", d, len(tunnels.Items))
		}
	}}

	// While a namespace is offloaded, nothing is changed.
	offloading := &offloadingv1alpha1.NamespaceOffloading{
		ObjectMeta: metav1.ObjectMeta{Name: "offloading", Namespace: "default", Finalizers: []string{"example.org/wait"}},
		Spec:       offloadingv1alpha1.NamespaceOffloadingSpec{ClusterSelector: corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{}}},
	}
	must(t, w.Create(ctx, offloading))
	if err := Run(ctx, w.job, o); !errors.Is(err, ErrOffloaded) || !strings.Contains(err.Error(), "liqoctl unoffload namespace default") {
		t.Errorf("while a namespace is offloaded: %v", err)
	}
	var untouched discoveryv1alpha1.ForeignCluster
	must(t, w.Get(ctx, client.ObjectKey{Name: "milan"}, &untouched))
	if untouched.Spec.OutgoingPeeringEnabled != discoveryv1alpha1.PeeringYes || w.replicas(ctx, t) != 2 {
		t.Errorf("while a namespace is offloaded, something was changed: %+v, %d replicas", untouched.Spec, w.replicas(ctx, t))
	}
	must(t, w.Delete(ctx, offloading)) // it stays until the finalizer is gone

	// So it is while a volume moves.
	move := &storagev1alpha1.VolumeMove{
		ObjectMeta: metav1.ObjectMeta{Name: "data", Namespace: "default"}, Spec: storagev1alpha1.VolumeMoveSpec{TargetNode: "worker-1"},
	}
	must(t, w.Create(ctx, move))
	if err := Run(ctx, w.job, o); !errors.Is(err, ErrMoving) ||
		!strings.Contains(err.Error(), "liqoctl move volume data -n default --cancel") || w.replicas(ctx, t) != 2 {
		t.Errorf("while a volume moves: %v, %d replicas", err, w.replicas(ctx, t))
	}
	move.Status.Phase = storagev1alpha1.MoveFailed
	must(t, w.Status().Update(ctx, move)) // a move that has ended changes nothing any more

	// Without controllers nothing ends, here until the peerings have been asked to. The error names everything, and the authentication service runs again.
	waiting, over := context.WithCancel(ctx)
	defer over()
	patient, first := o, make(chan error, 1)
	patient.Timeout = kubetest.InTime
	go func() { first <- Run(waiting, w.job, patient) }()
	kubetest.Eventually(t, "the peerings are asked to end", func() error {
		var all discoveryv1alpha1.ForeignClusterList
		if err := w.List(ctx, &all); err != nil {
			return err
		}
		for i := range all.Items {
			if all.Items[i].Spec.OutgoingPeeringEnabled != discoveryv1alpha1.PeeringNo {
				return errors.New("not that with " + all.Items[i].Name)
			}
		}
		return nil
	})
	over()
	err := <-first
	if !errors.Is(err, ErrStanding) {
		t.Fatalf("without controllers: %v", err)
	}
	for _, part := range []string{
		"ForeignCluster milan", "ForeignCluster turin", "namespace liqo-tenant-milan", "the tunnel to turin",
		"kubectl describe namespaceoffloading -n default",
	} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the error does not name %s: %v", part, err)
		}
	}
	var peer discoveryv1alpha1.ForeignCluster
	must(t, w.Get(ctx, client.ObjectKey{Name: "milan"}, &peer))
	if peer.DeletionTimestamp != nil || peer.Spec.OutgoingPeeringEnabled != discoveryv1alpha1.PeeringNo || peer.Spec.ForeignAuthURL == "" {
		t.Errorf("after the first run: %+v", peer)
	}
	if now := w.replicas(ctx, t); now != 2 {
		t.Errorf("after a failure %s has %d replicas, want 2 as before", auth, now)
	}

	// A run ends at its deadline, however far it has come. The service runs again even if a run that was killed had stopped it.
	stopped := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: auth}}
	must(t, w.Patch(ctx, stopped, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"replicas":0}}`))))
	if err := Run(ctx, w.job, o); err == nil {
		t.Error("a run ends without an error while both peers are left")
	}
	if now := w.replicas(ctx, t); now != 1 {
		t.Errorf("after a run that was killed, and one that failed, %s has %d replicas, want 1", auth, now)
	}
	must(t, w.Patch(ctx, offloading, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))))

	// With controllers, a second run continues where the first one ended.
	ended := make(chan error, 1)
	running, stop := context.WithCancel(ctx)
	go func() { ended <- w.controllers(running) }()
	o.Timeout = 30 * time.Second
	if err := Run(ctx, w.job, o); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	if slept != 1 {
		t.Errorf("waited %d times for the agents to clean their nodes, want once", slept)
	}
	var tunnels netv1alpha1.TunnelEndpointList
	must(t, w.List(ctx, &tunnels))
	if len(tunnels.Items) > 0 {
		t.Errorf("left: %v", tunnels.Items)
	}
	var peers discoveryv1alpha1.ForeignClusterList
	var left corev1.NamespaceList
	must(t, w.List(ctx, &peers))
	must(t, w.List(ctx, &left, client.MatchingLabels(tenants)))
	if len(peers.Items)+len(left.Items) != 0 {
		t.Errorf("left: %v %v", names(peers.Items), left.Items)
	}
	if now := w.replicas(ctx, t); now != 0 {
		t.Errorf("%s has %d replicas; a peer could come back before it is removed", auth, now)
	}
	for _, part := range []string{"ending the peerings with milan", "deleting ForeignCluster turin"} {
		if strings.Count(out.String(), part) != 1 {
			t.Errorf("want one line %q:\n%s", part, out.String())
		}
	}

	// A run without peerings prints nothing, and does not wait for agents.
	out.Reset()
	if err := Run(ctx, w.job, o); err != nil || out.Len() > 0 || slept != 1 {
		t.Errorf("third run: %v, printed %q, waited %d times for the agents", err, out.String(), slept-1)
	}
	stop()
	must(t, <-ended)
}

// grant gives the user the rights in the chart's generated file.
func grant(ctx context.Context, t *testing.T, c client.Client, user string) {
	t.Helper()
	text, err := fs.ReadFile(chart.FS, "files/rbac-cleanup.yaml")
	must(t, err)
	subjects := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}}
	for _, document := range strings.Split(string(text), "---\n") {
		var role rbacv1.ClusterRole
		must(t, yaml.Unmarshal([]byte(document), &role))
		ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: role.Kind, Name: role.Name}
		meta := metav1.ObjectMeta{Name: role.Name}
		switch role.Kind {
		case "ClusterRole":
			must(t, c.Create(ctx, &role))
			must(t, c.Create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: meta, RoleRef: ref, Subjects: subjects}))
		case "Role":
			meta.Namespace = namespace
			must(t, c.Create(ctx, &rbacv1.Role{ObjectMeta: meta, Rules: role.Rules}))
			must(t, c.Create(ctx, &rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: ref, Subjects: subjects}))
		}
	}
}

func withCRDs(t *testing.T) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	must(t, crds.AddToScheme(scheme))
	return scheme
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
