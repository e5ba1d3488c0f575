// SPDX-License-Identifier: Apache-2.0

package resourceslice

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	sharingv1alpha1 "liqo.io/liqo/apis/sharing/v1alpha1"
	"liqo.io/liqo/internal/kube/kubetest"
	"liqo.io/liqo/internal/peering/plugin"
)

func TestResourceSlice(t *testing.T) {
	t.Parallel()
	b := newSliceEnv(t)
	b.storageClasses()
	n1 := b.node("n1", sliceList("cpu", "100", "memory", "100G", "nvidia.com/gpu", "1", "pods", "110"))
	options := Options{
		Namespace: "liqo", SharingPercentage: 90, IncomingPeering: discoveryv1alpha1.PeeringYes, ClusterLabels: map[string]string{"topology.liqo.io/region": "west"},
		Refresh: 2 * time.Second, RefreshJitter: time.Millisecond, StorageClasses: []string{"*"},
	}
	stop := b.run(options)
	peer := b.tenant("rome")
	rome := b.slice("tenant-rome", "rome", nil)
	var milan *sharingv1alpha1.ResourceSlice // of a second peer, from "follows use" on

	t.Run("granted", func(t *testing.T) {
		b.T = t
		b.untilGranted("first grant", rome, "90")
		status := rome.Status
		gpu, memory, pods := status.Resources["nvidia.com/gpu"], status.Resources["memory"], status.Resources["pods"]
		if gpu.String() != "1" || memory.String() != "90G" || pods.String() != "99" {
			t.Errorf("granted %v", status.Resources)
		}
		if !slices.Equal(status.Architectures, []string{"amd64"}) ||
			status.Labels["topology.liqo.io/region"] != "west" || status.ObservedGeneration != rome.Generation {
			t.Errorf("status %+v", status)
		}
		if want := []sharingv1alpha1.StorageClass{{StorageClassName: "fast", Default: true}, {StorageClassName: "slow"}}; !slices.Equal(status.StorageClasses, want) {
			t.Errorf("storage classes %v", status.StorageClasses)
		}
		if !slices.Contains(rome.Finalizers, labels.FinalizerGrant) {
			t.Errorf("finalizers %v", rome.Finalizers)
		}
	})
	t.Run("follows use", func(t *testing.T) {
		b.T = t
		app := b.pod("app", "n1", "", "50")
		b.untilGranted("50 of 100 used", rome, "45")
		b.tenant("milan")
		milan = b.slice("tenant-milan", "milan", nil)
		b.untilGranted("same for the second peer", milan, "45")
		own := b.pod("offloaded", "n1", "rome-id", "20")
		b.untilGranted("another peer's pod takes away", milan, "27")
		b.untilGranted("its own does not", rome, "45")
		b.Must(b.Delete(t.Context(), own, client.GracePeriodSeconds(0)))
		b.Must(b.Delete(t.Context(), app, client.GracePeriodSeconds(0)))
		b.node("n2", sliceList("cpu", "100", "memory", "100G", "pods", "110"))
		b.untilGranted("200 free", rome, "180")
	})
	t.Run("node not ready", func(t *testing.T) {
		b.T = t
		n1.Status.Conditions[0].Status = corev1.ConditionUnknown
		b.Must(b.Status().Update(t.Context(), n1))
		b.untilGranted("half is not ready", rome, "90")
		n1.Status.Conditions[0].Status = corev1.ConditionTrue
		b.Must(b.Status().Update(t.Context(), n1))
		b.untilGranted("ready again", rome, "180")
		b.edit(n1, func() { n1.Spec.Unschedulable = true })
		b.untilGranted("cordoned", rome, "90")
		own := b.pod("stays", "n1", "rome-id", "20")
		b.untilGranted("what runs there stays granted", rome, "110")
		n2 := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n2"}}
		b.edit(n2, func() { n2.Spec.Unschedulable = true })
		b.untilReason("no node is left", rome, sharingv1alpha1.SliceAccepted, sharingv1alpha1.ReasonNothingToShare)
		b.untilGranted("and its pods are", rome, "20")
		b.edit(n2, func() { n2.Spec.Unschedulable = false })
		b.untilReason("a node again", rome, sharingv1alpha1.SliceAccepted, sharingv1alpha1.ReasonResourcesGranted)
		b.Must(b.Delete(t.Context(), own, client.GracePeriodSeconds(0)))
		b.untilGranted("nothing runs there", rome, "90")
		b.edit(n1, func() { n1.Spec.Unschedulable = false })
		b.untilGranted("back", rome, "180")
	})
	t.Run("small change is refreshed", func(t *testing.T) {
		b.T = t
		small := b.pod("small", "n1", "", "1") // TestSmallChangeWaits shows that it waits
		b.untilGranted("refreshed", rome, "179100m")
		b.untilGranted("the second peer as well, at its own time", milan, "179100m")
		b.Must(b.Delete(t.Context(), small, client.GracePeriodSeconds(0)))
		b.untilGranted("refreshed again", rome, "180")
		b.untilGranted("the second peer again", milan, "180")
	})
	t.Run("idle writes nothing", func(t *testing.T) {
		b.T = t
		b.writesNothing("idle")
	})
	t.Run("percentage", func(t *testing.T) {
		b.T = t
		config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: sharingConfigMap, Namespace: "liqo"}, Data: map[string]string{sharingKey: "50"}}
		b.Make(config)
		b.untilGranted("50%", rome, "100")
		b.edit(config, func() { config.Data[sharingKey] = "51" })
		b.untilGranted("one percent more, at once", rome, "102")
		b.edit(peer, func() { peer.Annotations = map[string]string{labels.SharingPercentage: "10"} })
		b.untilGranted("10% for this peer", rome, "20")
		b.edit(config, func() { config.Data[sharingKey] = "lots" })
		b.edit(peer, func() { peer.Annotations[labels.SharingPercentage] = "500" })
		b.untilGranted("neither the override nor the ConfigMap is valid", rome, "102")
		b.edit(peer, func() { peer.Annotations = nil })
		b.Must(b.Delete(t.Context(), config))
		b.untilGranted("the flag's again", rome, "180")
	})
	t.Run("asking for less", func(t *testing.T) {
		b.T = t
		b.edit(rome, func() { rome.Spec.Resources = sliceList("cpu", "8", "memory", "1Gi", "moon/dust", "1", "pods", "-1") })
		b.untilGranted("bounded by its request", rome, "8")
		second := b.slice("tenant-rome", "second", nil)
		b.untilGranted("the rest", second, "172")
		b.edit(rome, func() { rome.Spec.Resources = nil })
		b.untilGranted("the first has all", rome, "180")
		b.untilReason("nothing left for the second", second, sharingv1alpha1.SliceAccepted, sharingv1alpha1.ReasonNothingToShare)
		b.Must(b.Delete(t.Context(), second))
		b.untilGone("not the last one", second)
		b.Must(b.Get(t.Context(), client.ObjectKeyFromObject(peer), peer))
	})
	t.Run("refused", func(t *testing.T) {
		b.T = t
		b.edit(peer, func() { peer.Spec.IncomingPeeringEnabled = discoveryv1alpha1.PeeringNo })
		b.untilReason("No", rome, sharingv1alpha1.SliceRefused, sharingv1alpha1.ReasonIncomingDisabled)
		b.edit(peer, func() { peer.Spec.IncomingPeeringEnabled = discoveryv1alpha1.PeeringYes })
		b.untilGranted("Yes", rome, "180")
	})
	t.Run("a restart writes nothing", func(t *testing.T) {
		b.T = t
		stop()
		b.run(options)
		for _, namespace := range []string{"tenant-rome", "tenant-milan"} { // both: writes of their status must not count below
			probe := b.slice(namespace, "probe", nil)
			b.untilReason("controller runs again", probe, sharingv1alpha1.SliceAccepted, sharingv1alpha1.ReasonNothingToShare)
		}
		b.writesNothing("after a restart")
	})
	t.Run("too many", func(t *testing.T) {
		b.T = t
		b.tenant("greedy")
		var first, last *sharingv1alpha1.ResourceSlice
		for i := range maxSlices + 1 {
			last = b.slice("tenant-greedy", fmt.Sprintf("s%02d", i), sliceList("cpu", "1", "memory", "1G"))
			if first == nil {
				first = last
			}
		}
		b.untilReason("one more than allowed", last, sharingv1alpha1.SliceRefused, sharingv1alpha1.ReasonTooManySlices)
		b.untilGranted("the oldest", first, "1")
		b.Must(b.Delete(t.Context(), first))
		b.untilGranted("one fewer", last, "1")
	})
	t.Run("not ours to answer", func(t *testing.T) {
		b.T = t
		outside := b.slice("apps", "outside", nil)
		ours := b.slice("tenant-milan", "ours", nil)
		b.edit(ours, func() { ours.Labels = map[string]string{labels.Replication: "true", labels.Replicated: "true"} })
		probe := b.slice("tenant-milan", "later", nil)
		b.untilReason("a later one is answered", probe, sharingv1alpha1.SliceAccepted, sharingv1alpha1.ReasonNothingToShare)
		b.Must(b.Get(t.Context(), client.ObjectKeyFromObject(outside), outside))
		if len(outside.Status.Conditions)+len(outside.Finalizers) > 0 {
			t.Errorf("outside of a tenant: %+v", outside)
		}
	})
	t.Run("taken down by the peer", func(t *testing.T) {
		b.T = t
		for _, name := range []string{"rome", "probe"} {
			gone := &sharingv1alpha1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "tenant-rome"}}
			b.Must(b.Delete(t.Context(), gone))
			b.untilGone("deleted by the peer", gone)
		}
		b.untilGone("the ForeignCluster is deleted with the last slice", peer)
	})
	t.Run("taken down by us", func(t *testing.T) {
		b.T = t
		both := b.tenant("both", func(fc *discoveryv1alpha1.ForeignCluster) {
			fc.Finalizers = []string{labels.FinalizerPeer}
			fc.Spec.OutgoingPeeringEnabled, fc.Spec.ForeignAuthURL = discoveryv1alpha1.PeeringYes, "https://both"
		})
		slice := b.slice("tenant-both", "both", nil)
		b.untilGranted("granted", slice, "180")
		b.Must(b.Delete(t.Context(), slice))
		b.untilGone("the peer withdraws", slice)
		b.Must(b.Get(t.Context(), client.ObjectKeyFromObject(both), both))
		if both.DeletionTimestamp != nil {
			t.Error("a foreign cluster with an outgoing peering was deleted")
		}
		slice = b.slice("tenant-both", "both", nil)
		b.untilGranted("again", slice, "180")
		b.Must(b.Delete(t.Context(), both))
		b.untilReason("withdrawing", slice, sharingv1alpha1.SliceRefused, sharingv1alpha1.ReasonProviderWithdrawing)
		b.Must(b.Delete(t.Context(), slice))
		b.untilGone("the peer obeys", slice)
		b.edit(both, func() { both.Finalizers = nil })
	})
}

// slicePlugin is a plugin in the test's process.
type slicePlugin struct {
	plugin.UnimplementedResourceReaderServer
	mu      sync.Mutex
	grant   map[string]string
	changed chan string
	removed chan string
}

func (p *slicePlugin) set(grant map[string]string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.grant = grant
}

func (p *slicePlugin) ReadResources(context.Context, *plugin.ClusterIdentity) (*plugin.ResourceList, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return &plugin.ResourceList{Resources: p.grant}, nil
}

func (p *slicePlugin) Subscribe(_ *plugin.Empty, stream grpc.ServerStreamingServer[plugin.ClusterIdentity]) error {
	for {
		select {
		case <-stream.Context().Done():
			return nil
		case id := <-p.changed:
			if err := stream.Send(&plugin.ClusterIdentity{ClusterID: id}); err != nil {
				return err
			}
		}
	}
}

func (p *slicePlugin) RemoveCluster(_ context.Context, peer *plugin.ClusterIdentity) (*plugin.Empty, error) {
	p.removed <- peer.GetClusterID()
	return &plugin.Empty{}, nil
}

func (p *slicePlugin) serve(t *testing.T, address string) (server *grpc.Server, at string) {
	t.Helper()
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	server = grpc.NewServer()
	plugin.RegisterResourceReaderServer(server, p)
	go func() { _ = server.Serve(listener) }() // ends with Stop
	t.Cleanup(server.Stop)
	return server, listener.Addr().String()
}

func TestResourceSliceWithPlugin(t *testing.T) {
	t.Parallel()
	b := newSliceEnv(t)
	b.storageClasses()
	b.node("n1", sliceList("cpu", "100", "memory", "100G"))
	decides := &slicePlugin{grant: map[string]string{"cpu": "7", "memory": "9G"}, changed: make(chan string), removed: make(chan string, 10)}
	server, address := decides.serve(t, kubetest.OwnAddress())
	b.run(Options{Namespace: "liqo", SharingPercentage: 90, IncomingPeering: discoveryv1alpha1.PeeringYes, PluginAddress: address})
	b.tenant("rome")
	rome := b.slice("tenant-rome", "rome", nil)
	b.untilGranted("the plugin's grant", rome, "7")
	if !slices.Equal(rome.Status.Architectures, []string{"amd64"}) {
		t.Errorf("architectures %v", rome.Status.Architectures)
	}

	decides.set(map[string]string{"cpu": "7100m", "memory": "9G"})
	decides.changed <- "rome-id"
	b.untilGranted("threshold zero", rome, "7100m")
	b.writesNothing("plugin idle")

	decides.set(map[string]string{"cpu": "-3"})
	decides.changed <- "rome-id"
	b.untilReason("an invalid answer", rome, sharingv1alpha1.SliceAccepted, sharingv1alpha1.ReasonPluginFailed)
	b.untilGranted("the last grant stays", rome, "7100m")
	if granted := meta.FindStatusCondition(rome.Status.Conditions, sharingv1alpha1.ConditionGranted); granted.Status != metav1.ConditionTrue {
		t.Errorf("condition %v", granted)
	}

	decides.set(map[string]string{"cpu": "7100m", "memory": "9G"})
	decides.changed <- "rome-id"
	b.untilReason("a valid answer again", rome, sharingv1alpha1.SliceAccepted, sharingv1alpha1.ReasonResourcesGranted)

	server.Stop()
	decides.set(map[string]string{"cpu": "1", "memory": "9G"})
	b.tenant("milan")
	milan := b.slice("tenant-milan", "milan", nil)
	b.untilReason("no plugin, nothing yet", milan, sharingv1alpha1.SlicePending, sharingv1alpha1.ReasonPluginFailed)
	b.untilGranted("the last grant stays without a plugin", rome, "7100m")
	b.writesNothing("without a plugin")
	decides.serve(t, address)
	b.untilGranted("the plugin is back", rome, "1")
	b.untilGranted("for all", milan, "1")

	b.Must(b.Delete(t.Context(), milan))
	b.untilGone("plugin", milan)
	select {
	case id := <-decides.removed:
		if id != "milan-id" {
			t.Errorf("removed %s", id)
		}
	case <-time.After(kubetest.InTime):
		t.Error("the plugin was not notified of the removal of a peer")
	}
}

// TestStaleCacheEndsNoPeering: a cache that still shows the request of an earlier peering does not end the new one.
func TestStaleCacheEndsNoPeering(t *testing.T) {
	b := newSliceEnv(t)
	peer := b.tenant("rome")
	earlier := b.slice("tenant-rome", "rome", nil)
	b.Must(b.Delete(t.Context(), earlier))
	earlier.DeletionTimestamp, earlier.Finalizers = new(metav1.Now()), []string{labels.FinalizerGrant}
	plain, err := client.NewWithWatch(b.admin, client.Options{Scheme: b.scheme})
	b.Must(err)
	withEarlier := func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
		err := c.List(ctx, list, opts...)
		if slices, ok := list.(*sharingv1alpha1.ResourceSliceList); ok {
			slices.Items = append(slices.Items, *earlier)
		}
		return err
	}
	stale := interceptor.NewClient(plain, interceptor.Funcs{List: withEarlier})
	r := &reconciler{options: Options{Namespace: "liqo"}, client: stale, live: plain, tenants: newSliceTenants()}
	_, err = r.Reconcile(t.Context(), sliceRequest("tenant-rome"))
	b.Must(err)
	if b.Read(peer); peer.DeletionTimestamp != nil {
		t.Error("the peer is gone")
	}
}

// TestAttackH5Slices: a peer that writes resource slices without end costs a bounded number of answers.
func TestAttackH5Slices(t *testing.T) {
	b := newSliceEnv(t)
	b.node("node", sliceList("cpu", "200", "memory", "400G", "pods", "100"))
	b.run(Options{Namespace: "liqo", SharingPercentage: 90, IncomingPeering: discoveryv1alpha1.PeeringYes, Debounce: time.Millisecond})
	b.tenant("greedy")
	all := []*sharingv1alpha1.ResourceSlice{}
	for i := range MaxAnswered + 8 {
		all = append(all, b.slice("tenant-greedy", fmt.Sprintf("s%02d", i), sliceList("cpu", "1", "memory", "1G")))
	}
	b.untilReason("the last one that is answered", all[MaxAnswered-1], sharingv1alpha1.SliceRefused, sharingv1alpha1.ReasonTooManySlices)
	// One fewer: the next one is answered, and with the same reconciliation all that ever are.
	b.Must(b.Delete(t.Context(), all[0]))
	b.untilReason("the next one", all[MaxAnswered], sharingv1alpha1.SliceRefused, sharingv1alpha1.ReasonTooManySlices)
	for _, one := range all[MaxAnswered+1:] {
		if b.Must(b.Get(t.Context(), client.ObjectKeyFromObject(one), one)); one.Status.Phase != "" || len(one.Status.Conditions) > 0 {
			t.Errorf("slice %s has the answer %+v", one.Name, one.Status)
		}
	}
}
