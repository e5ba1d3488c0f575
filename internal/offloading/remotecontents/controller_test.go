// SPDX-License-Identifier: Apache-2.0

package remotecontents

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/apis/labels"
	offloadingv1alpha1 "liqo.io/liqo/apis/offloading/v1alpha1"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/offloading/contents"
	"liqo.io/liqo/internal/offloading/controllertest"
)

// farReader is the API server of a provider, as the function of the test answers it.
type farReader struct {
	client.Reader
	list func(ctx context.Context, kind, namespace string, list *metav1.PartialObjectMetadataList) error
}

func (f farReader) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	found := list.(*metav1.PartialObjectMetadataList)
	chosen := client.ListOptions{}
	chosen.ApplyOptions(options)
	found.Items, found.Continue = nil, ""
	return f.list(ctx, strings.TrimSuffix(found.Kind, "List"), chosen.Namespace, found)
}

func object(name, origin, volume string) metav1.PartialObjectMetadata {
	return metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{labels.Origin: origin}, Annotations: map[string]string{labels.VirtualVolume: volume},
	}}
}

// TestRemoteContents: a request is answered once, from what is there now, with one write; without a request, nothing is read or written.
func TestRemoteContents(t *testing.T) {
	b := controllertest.New(t)
	b.Make(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}})
	for _, name := range []string{"milan-1", "turin-1", "genoa-1", "siena-1", "parma-1"} {
		namespaceMap := &vkv1alpha1.NamespaceMap{ObjectMeta: metav1.ObjectMeta{
			Namespace: controllertest.Tenant, Name: name, Labels: map[string]string{labels.Replication: "true", labels.RemoteID: name + "-id"},
		}}
		b.Make(namespaceMap)
		b.EditStatus(namespaceMap, func() {
			namespaceMap.Status.CurrentMapping = map[string]vkv1alpha1.RemoteNamespaceStatus{"shop": {RemoteNamespace: "shop-rome", Phase: vkv1alpha1.MappingAccepted}}
		})
	}
	b.Make(&corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pvc-1", Labels: map[string]string{labels.RemoteClusterID: "milan-1-id"}},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/tmp/x"}},
			ClaimRef:               &corev1.ObjectReference{Namespace: "shop", Name: "data"},
		},
	})
	offloading := b.Offload(nil)

	var reads atomic.Int32
	var created atomic.Bool
	reader := func(id string) (client.Reader, error) {
		reads.Add(1)
		switch id {
		case "milan-1-id": // pages, copies, claims; and an object that is created later
			return farReader{list: func(_ context.Context, kind, namespace string, list *metav1.PartialObjectMetadataList) error {
				switch {
				case namespace != "shop-rome":
					return errors.New("namespace " + namespace)
				case kind == "Pod":
					list.Items = []metav1.PartialObjectMetadata{object("web", "rome-id", "")}
				case kind == "PersistentVolumeClaim":
					list.Items = []metav1.PartialObjectMetadata{object("data", "", "pvc-1"), object("theirs", "", "")}
				case kind == "Secret" && created.Load():
					list.Items = []metav1.PartialObjectMetadata{object("late", "", "")}
				}
				return nil
			}}, nil
		case "turin-1-id": // silent
			return farReader{list: func(ctx context.Context, _, _ string, _ *metav1.PartialObjectMetadataList) error {
				<-ctx.Done()
				return ctx.Err()
			}}, nil
		case "genoa-1-id": // a list without an end, and text for a terminal
			return farReader{list: func(_ context.Context, _, _ string, list *metav1.PartialObjectMetadataList) error {
				list.Items, list.Continue = []metav1.PartialObjectMetadata{object("x\x1b[2J", "", "")}, "more"
				return nil
			}}, nil
		case "siena-1-id":
			return nil, errors.New("not connected \x1b[2J" + strings.Repeat("x", 5000))
		}
		t.Errorf("cluster %s is read, and not asked for", id)
		return nil, errors.New("unexpected")
	}
	setup := func(mgr ctrl.Manager) error {
		return Setup(mgr, Options{Consumer: "rome-id", Reader: reader, Timeout: time.Second})
	}
	stop := b.Start(setup)
	ask := func(request string, clusters ...string) *offloadingv1alpha1.RemoteContents {
		t.Helper()
		b.Edit(offloading, func() {
			offloading.Annotations = map[string]string{labels.CountRemoteContents: contents.Ask(request, clusters)}
		})
		b.Until("request "+request+" is answered", func() bool {
			b.Read(offloading)
			return offloading.Status.RemoteContents != nil && offloading.Status.RemoteContents.Request == request
		})
		return offloading.Status.RemoteContents
	}

	answer := ask("first", "milan-1", "turin-1", "genoa-1", "siena-1", "nowhere-1")
	milan := answer.Clusters["milan-1"]
	if len(answer.Clusters) != 4 || milan.RemoteNamespace != "shop-rome" || milan.Error != "" || milan.Copies["Pod"] != 1 ||
		milan.Claims == nil || milan.Claims.Count != 1 || milan.Claims.Names[0] != "theirs" || milan.Others != nil {
		t.Errorf("answer %+v", answer)
	}
	for cluster, want := range map[string]string{
		"turin-1": "deadline exceeded; see: liqoctl status peer", "genoa-1": "does not end after 100 pages", "siena-1": "not connected [2Jxxx",
	} {
		if found := answer.Clusters[cluster]; !strings.Contains(found.Error, want) || len(found.Error) > 600 || found.Copies != nil || found.Others != nil {
			t.Errorf("%s: %+v, want %q", cluster, found, want)
		}
	}

	created.Store(true)
	before := b.Writes.Load()
	if found := ask("second", "milan-1").Clusters["milan-1"]; found.Others == nil || found.Others.Names[0] != "Secret late" {
		t.Errorf("what was created since the last request is missing: %+v", found)
	}
	if writes := b.Writes.Load() - before; writes != 1 {
		t.Errorf("%d writes for one answer", writes)
	}
	stop()

	before, known := b.Writes.Load(), reads.Load()
	stop = b.Start(setup) // an answered request is not answered again, neither after a restart nor after other changes
	b.Edit(offloading, func() { offloading.Spec.PodOffloadingStrategy = offloadingv1alpha1.PodsRemote })
	b.EditStatus(offloading, func() { offloading.Status.OffloadingPhase = offloadingv1alpha1.OffloadingReady })
	time.Sleep(300 * time.Millisecond)
	if b.Writes.Load() != before || reads.Load() != known {
		t.Errorf("%d writes and %d reads while idle", b.Writes.Load()-before, reads.Load()-known)
	}
	b.Edit(offloading, func() { offloading.Annotations = nil })
	b.Until("the answer is removed with the request", func() bool {
		b.Read(offloading)
		return offloading.Status.RemoteContents == nil
	})
	if offloading.Status.OffloadingPhase != offloadingv1alpha1.OffloadingReady {
		t.Errorf("the rest of the status was changed: %+v", offloading.Status)
	}
	stop()
}
