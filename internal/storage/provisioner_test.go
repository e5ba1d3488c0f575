// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"

	"liqo.io/liqo/apis/labels"
	sharingv1alpha1 "liqo.io/liqo/apis/sharing/v1alpha1"
	"liqo.io/liqo/internal/kube/kubetest"
	"liqo.io/liqo/internal/storage/data"
)

const (
	storageNamespace = "liqo-storage"
	user             = "storage-test"
)

// storageEnv is a cluster with the provisioner, which has only its own rights. The test plays scheduler, volume controller and the provisioner of the
// real class.
type storageEnv struct {
	kubetest.Env
	config *rest.Config // of an administrator
	writes atomic.Int64 // of the provisioner
}

func newStorageEnv(t *testing.T) *storageEnv {
	t.Helper()
	b := &storageEnv{Env: kubetest.Env{T: t}}
	admin, scheme := kubetest.Cluster(t), runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, sharingv1alpha1.AddToScheme} {
		b.Must(add(scheme))
	}
	_, err := envtest.InstallCRDs(admin, envtest.CRDInstallOptions{Paths: []string{"../../deployments/liqo/crds"}, ErrorIfPathMissing: true})
	b.Must(err)
	b.config = admin
	b.Client, err = client.New(admin, client.Options{Scheme: scheme})
	b.Must(err)
	for _, name := range []string{storageNamespace, "shop", "liqo-tenant-milan"} {
		b.Make(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	for namespace, rules := range b.RBACMarkers("*.go") {
		b.Bind(user, namespace, rules)
	}
	limited := rest.CopyConfig(admin)
	limited.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:authenticated"}}
	limited.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return kubetest.RoundTripper(func(request *http.Request) (*http.Response, error) {
			if request.Method != http.MethodGet {
				b.writes.Add(1)
			}
			return next.RoundTrip(request)
		})
	})
	mgr, err := manager.New(limited, manager.Options{
		Scheme: scheme, Metrics: metricsserver.Options{BindAddress: "0"}, Controller: config.Controller{SkipNameValidation: new(true)},
	})
	b.Must(err)
	b.Must(Setup(mgr, Options{Namespace: storageNamespace, RealClass: "disk"}))
	kubetest.Start(t, "manager", mgr.Start)
	b.Make(&storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: "liqo"}, Provisioner: data.Provisioner,
		VolumeBindingMode: new(storagev1.VolumeBindingWaitForFirstConsumer), AllowVolumeExpansion: new(true),
	})
	b.Make(&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "disk"}, Provisioner: "disk.example.com", AllowVolumeExpansion: new(true)})
	b.Make(&storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "disk.example.com"}})
	b.Make(&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "plain"}, Provisioner: "plain.example.com"})
	for name, parameters := range map[string]map[string]string{"liqo-plain": {realClassParameter: "plain"}, "liqo-slow": {remoteClassParameter: "milan-plain"}} {
		b.Make(&storagev1.StorageClass{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: data.Provisioner,
			VolumeBindingMode: new(storagev1.VolumeBindingWaitForFirstConsumer), Parameters: parameters,
		})
	}
	b.Make(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker"}})
	b.Make(&corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "liqo-milan", Labels: map[string]string{labels.Type: labels.TypeVirtualNode, labels.RemoteClusterID: "milan-id"}},
	})
	slice := &sharingv1alpha1.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-milan", Name: "milan", Labels: map[string]string{labels.Replication: "true"}},
		Spec:       sharingv1alpha1.ResourceSliceSpec{ProviderClusterID: "milan-id", ConsumerClusterID: "rome-id", NodeName: "liqo-milan"},
	}
	b.Make(slice)
	b.EditStatus(slice, func() {
		slice.Status.StorageClasses = []sharingv1alpha1.StorageClass{{StorageClassName: "milan-disk", Default: true, Clones: true}, {StorageClassName: "milan-plain"}}
	})
	return b
}

// claim creates a claim for a pod on the node, as scheduler and volume controller leave it.
func (b *storageEnv) claim(name, node string, change func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	b.T.Helper()
	claim := claimOf(change)
	claim.Name, claim.UID, claim.Spec.VolumeMode = name, "", nil
	claim.Annotations = map[string]string{data.SelectedNode: node, data.Assigned: data.Provisioner}
	b.Make(claim)
	return claim
}

func (b *storageEnv) real(of *corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaim {
	b.T.Helper()
	real := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: storageNamespace, Name: string(of.UID)}}
	b.exists(real)
	return real
}

func (b *storageEnv) exists(object client.Object) {
	b.T.Helper()
	kubetest.Eventually(b.T, fmt.Sprintf("%T %s exists", object, object.GetName()), func() error {
		return b.Get(b.T.Context(), client.ObjectKeyFromObject(object), object)
	})
}

func (b *storageEnv) gone(object client.Object) {
	b.T.Helper()
	b.Until(fmt.Sprintf("%T %s is gone", object, object.GetName()), func() bool {
		err := b.Get(b.T.Context(), client.ObjectKeyFromObject(object), object)
		return apierrors.IsNotFound(err) || err == nil && object.GetDeletionTimestamp() != nil
	})
}

// bind makes a volume for a real claim, as its provisioner and the volume controller do.
func (b *storageEnv) bind(real *corev1.PersistentVolumeClaim, handle string) {
	b.T.Helper()
	b.Make(&corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: handle},
		Spec: corev1.PersistentVolumeSpec{
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "disk.example.com", VolumeHandle: handle}},
			AccessModes:            real.Spec.AccessModes, Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("2Gi")},
			NodeAffinity: onNode("worker"),
		},
	})
	b.Edit(real, func() { real.Spec.VolumeName = handle })
	b.EditStatus(real, func() { real.Status.Phase = corev1.ClaimBound })
}

func (b *storageEnv) volume(of *corev1.PersistentVolumeClaim) *corev1.PersistentVolume {
	b.T.Helper()
	volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: data.VolumePrefix + string(of.UID)}}
	b.exists(volume)
	return volume
}

// provisioner returns another one, whose methods the test calls.
func (b *storageEnv) provisioner() *provisioner {
	b.T.Helper()
	kube, err := kubernetes.NewForConfig(b.config)
	b.Must(err)
	return &provisioner{options: Options{Namespace: storageNamespace}, cached: b.Client, own: b.Client, kube: kube}
}

// release deletes a claim, as a user does, and releases its volume, as the volume controller does.
func (b *storageEnv) release(claim *corev1.PersistentVolumeClaim, volume *corev1.PersistentVolume) {
	b.T.Helper()
	b.Edit(claim, func() { claim.Finalizers = nil }) // of the API server's admission: no controller removes it here
	b.Must(client.IgnoreNotFound(b.Delete(b.T.Context(), claim)))
	b.EditStatus(volume, func() { volume.Status.Phase = corev1.VolumeReleased })
}

func (b *storageEnv) warning(about *corev1.PersistentVolumeClaim, text string) {
	b.T.Helper()
	kubetest.Eventually(b.T, "a warning about "+text, func() error {
		var all corev1.EventList
		if err := b.List(b.T.Context(), &all, client.InNamespace(about.Namespace)); err != nil {
			return err
		}
		for i := range all.Items {
			if one := &all.Items[i]; one.InvolvedObject.UID == about.UID && one.Type == corev1.EventTypeWarning && strings.Contains(one.Message, text) {
				return nil
			}
		}
		return fmt.Errorf("%d events, none of them", len(all.Items))
	})
}

// TestProvisioner: the data of a claim whose first pod runs here is in a real claim, and that of one whose pod runs at a provider is there.
func TestProvisioner(t *testing.T) {
	b := newStorageEnv(t)
	for name, test := range map[string]func(*storageEnv){
		"here": func(b *storageEnv) {
			claim := b.claim("here", "worker", nil)
			real := b.real(claim)
			if *real.Spec.StorageClassName != "disk" || real.Annotations[data.SelectedNode] != "worker" {
				b.T.Errorf("real claim %+v %v", real.Spec, real.Annotations)
			}
			b.bind(real, "handle-1")
			volume := b.volume(claim)
			if volume.Spec.CSI == nil || volume.Spec.CSI.VolumeHandle != "handle-1" || volume.Spec.ClaimRef.UID != claim.UID || volume.Spec.StorageClassName != "liqo" ||
				volume.Spec.Capacity.Storage().String() != "2Gi" || data.IsRemote(volume) {
				b.T.Errorf("volume %+v", volume.Spec)
			}
			// The library gives up a volume that it could not save, as it seems to it. This one is in use.
			unsaved := volume.DeepCopy()
			unsaved.UID, unsaved.ResourceVersion = "", ""
			if err := b.provisioner().Delete(b.T.Context(), unsaved); err == nil {
				b.T.Error("the data of a claim that exists was deleted")
			}
			b.Read(real)
			if real.DeletionTimestamp != nil {
				b.T.Error("the real claim of a claim that exists was deleted")
			}
			b.release(claim, volume)
			b.gone(real)
			b.gone(volume)
		},
		"deleted, and a successor has its name": func(b *storageEnv) {
			claim := b.claim("data", "worker", nil)
			real := b.real(claim)
			b.bind(real, "handle-5")
			volume := b.volume(claim)
			b.Edit(claim, func() { claim.Finalizers = nil })
			b.Must(client.IgnoreNotFound(b.Delete(b.T.Context(), claim)))
			successor := b.claim("data", "worker", nil)
			b.bind(b.real(successor), "handle-6")
			other := b.volume(successor)
			b.EditStatus(volume, func() { volume.Status.Phase = corev1.VolumeReleased })
			b.gone(real)
			b.gone(volume)
			b.Read(other)
			if its := b.real(successor); its.DeletionTimestamp != nil || other.DeletionTimestamp != nil {
				b.T.Error("the data of the successor was deleted")
			}
		},
		"grows": func(b *storageEnv) {
			claim := b.claim("grows", "worker", nil)
			real := b.real(claim)
			b.bind(real, "handle-3")
			volume := b.volume(claim)
			size := func(size string) corev1.ResourceList {
				return corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
			}
			b.Edit(claim, func() { claim.Spec.VolumeName = volume.Name })
			b.EditStatus(claim, func() { claim.Status.Phase, claim.Status.Capacity = corev1.ClaimBound, size("2Gi") })
			b.Edit(claim, func() { claim.Spec.Resources.Requests = size("3Gi") })
			b.Until("the real claim asks for more", func() bool { b.Read(real); return real.Spec.Resources.Requests.Storage().String() == "3Gi" })
			b.EditStatus(real, func() { real.Status.Capacity = size("4Gi") })
			b.Until("the claim has more", func() bool {
				b.Read(volume)
				b.Read(claim)
				return volume.Spec.Capacity.Storage().String() == "4Gi" && claim.Status.Capacity.Storage().String() == "4Gi"
			})
		},
		"at the provider": func(b *storageEnv) {
			claim := b.claim("there", "liqo-milan", nil)
			volume := b.volume(claim)
			if volume.Spec.HostPath == nil || volume.Labels[labels.RemoteClusterID] != "milan-id" || volume.Annotations[labels.RemoteStorageClass] != "milan-disk" {
				b.T.Errorf("volume %+v %+v", volume.ObjectMeta, volume.Spec)
			}
			// Only the virtual kubelet deletes what is at its provider. The next claim is later in the same queue.
			b.release(claim, volume)
			later := b.claim("there-later", "liqo-milan", nil)
			b.release(later, b.volume(later))
			b.Read(volume)
			if volume.DeletionTimestamp != nil {
				b.T.Error("the record of data at a provider was deleted here")
			}
		},
		"a copy of a claim": func(b *storageEnv) {
			here, there := b.claim("first-here", "worker", nil), b.claim("first-there", "liqo-milan", nil)
			real := b.real(here)
			b.bind(real, "handle-4")
			for _, one := range []*corev1.PersistentVolumeClaim{here, there} {
				volume := b.volume(one)
				b.Edit(one, func() { one.Spec.VolumeName = volume.Name })
				b.EditStatus(one, func() { one.Status.Phase = corev1.ClaimBound })
			}
			of := func(source, class string) func(*corev1.PersistentVolumeClaim) {
				return func(claim *corev1.PersistentVolumeClaim) {
					claim.Spec.DataSource, claim.Spec.StorageClassName = &corev1.TypedLocalObjectReference{Kind: claimKind, Name: source}, &class
					claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("2Gi")}
				}
			}
			if second := b.real(b.claim("second-here", "worker", of("first-here", "liqo"))); second.Spec.DataSource == nil ||
				second.Spec.DataSource.Kind != claimKind || second.Spec.DataSource.Name != real.Name {
				b.T.Errorf("the real claim has the source %v", second.Spec.DataSource)
			}
			b.warning(b.claim("before-the-record", "liqo-milan", of("first-there", "liqo")), "not recorded yet")
			at := b.volume(there)
			b.Edit(at, func() { at.Annotations[labels.RemoteVolume] = "disk-1" })
			if second := b.volume(b.claim("second-there", "liqo-milan", of("first-there", "liqo"))); second.Annotations[labels.RemoteDataSource] != "first-there" {
				b.T.Errorf("volume %v", second.Annotations)
			}
			b.warning(b.claim("here-of-there", "worker", of("first-there", "liqo")), "in another cluster")
			b.warning(b.claim("there-of-here", "liqo-milan", of("first-here", "liqo")), "in another cluster")
			b.warning(b.claim("of-nothing", "worker", of("missing", "liqo")), "claim missing (spec.dataSource) does not exist")
			b.warning(b.claim("plain-here", "worker", of("first-here", "liqo-plain")), "storage class plain cannot copy volumes")
			b.warning(b.claim("plain-there", "liqo-milan", of("first-there", "liqo-slow")), "storage class milan-plain of cluster liqo-milan cannot copy volumes")
			b.warning(b.claim("of-snapshot", "worker", func(claim *corev1.PersistentVolumeClaim) {
				claim.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "VolumeSnapshot", APIGroup: new("snapshot.storage.k8s.io"), Name: "s"}
			}), "VolumeSnapshot")
		},
		"the real class refuses the node": func(b *storageEnv) {
			claim := b.claim("elsewhere", "worker", nil)
			real := b.real(claim)
			b.Edit(real, func() { delete(real.Annotations, data.SelectedNode) })
			b.gone(real)
			b.Until("the scheduler selects another node", func() bool {
				b.Read(claim)
				return claim.Annotations[data.SelectedNode] == ""
			})
		},
		"the node is gone": func(b *storageEnv) {
			claim := b.claim("no-node", "nowhere", nil)
			b.Until("the scheduler selects another node", func() bool {
				b.Read(claim)
				return claim.Annotations[data.SelectedNode] == ""
			})
		},
		"the node is gone after an earlier attempt": func(b *storageEnv) {
			claim := claimOf(nil)
			claim.Name, claim.UID, claim.Spec.VolumeMode = "no-node-any-more", "", nil
			b.Make(claim)
			real := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: storageNamespace, Name: string(claim.UID)}, Spec: claimOf(nil).Spec}
			b.Make(real)
			options := controller.ProvisionOptions{PVName: "pvc-" + string(claim.UID), PVC: claim, StorageClass: &storagev1.StorageClass{}, SelectedNodeName: "nowhere"}
			if _, state, err := b.provisioner().Provision(b.T.Context(), options); err == nil || state != controller.ProvisioningReschedule {
				b.T.Errorf("%v, %v", state, err)
			}
			b.gone(real)
		},
		"refused": func(b *storageEnv) {
			claim := b.claim("refused", "worker", func(claim *corev1.PersistentVolumeClaim) {
				claim.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
			})
			b.warning(claim, "spec.selector")
		},
		"a volume that was not made by us": func(b *storageEnv) {
			// A user who may write volumes must not be able to have us delete a claim.
			precious := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: storageNamespace, Name: "precious"}, Spec: claimOf(nil).Spec}
			b.Make(precious)
			volume := localVolume("precious", claimOf(nil), &storagev1.StorageClass{}, &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{
				PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/tmp/x"}},
				Capacity:               corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			}})
			volume.Annotations = map[string]string{data.Provisioned: data.Provisioner}
			gone := claimOf(nil)
			volume.Spec.ClaimRef = &corev1.ObjectReference{Namespace: gone.Namespace, Name: "gone", UID: gone.UID}
			b.Make(volume)
			gone.Name = "gone"
			gone.UID = ""
			b.Make(gone)
			b.release(gone, volume)
			later := b.claim("later", "worker", nil)
			b.bind(b.real(later), "handle-2")
			laterVolume := b.volume(later)
			b.release(later, laterVolume)
			b.gone(laterVolume)
			b.Read(precious)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(&storageEnv{Env: kubetest.Env{Client: b.Client, T: t}, config: b.config})
		})
	}
}

// TestWrites counts what a claim costs until it has its volume, and afterwards.
func TestWrites(t *testing.T) {
	b := newStorageEnv(t)
	first := b.claim("first", "worker", nil)
	b.bind(b.real(first), "handle-1")
	b.volume(first)
	succeeded := func(claim *corev1.PersistentVolumeClaim) func() bool {
		return func() bool {
			var all corev1.EventList
			b.Must(b.List(context.Background(), &all))
			for i := range all.Items {
				if all.Items[i].InvolvedObject.UID == claim.UID && all.Items[i].Reason == "ProvisioningSucceeded" {
					return true
				}
			}
			return false
		}
	}
	b.Until("the last event of the claim", succeeded(first))
	if writes := b.writes.Swap(0); writes > 4 {
		t.Errorf("a claim here costs %d writes, at most 4 are expected: the real claim, the volume and two events", writes)
	}
	second := b.claim("second", "liqo-milan", nil)
	b.volume(second)
	b.Until("the last event of the claim", succeeded(second))
	if writes := b.writes.Swap(0); writes > 3 {
		t.Errorf("a claim at a provider costs %d writes here, at most 3 are expected: the volume and two events", writes)
	}
}
