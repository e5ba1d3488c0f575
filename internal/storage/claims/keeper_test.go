// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/kube/kubetest"
	"liqo.io/liqo/internal/storage/data"
)

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

const (
	shop   = "shop"
	remote = "shop-rome"
	user   = "keeper-test"
)

// peer plays the reflection: one namespace is offloaded, or none.
type peer struct {
	client client.WithWatch

	mu       sync.Mutex
	remote   string // namespace; empty while none is offloaded
	warnings []string
}

func (p *peer) Client(context.Context) (client.WithWatch, error) { return p.client, nil }

func (p *peer) Remote(namespace string) (string, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if namespace != shop {
		return "", false
	}
	return p.remote, p.remote != ""
}

func (p *peer) Local(namespace string) (string, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return shop, namespace == p.remote && p.remote != ""
}

func (p *peer) Labels(object client.Object) map[string]string {
	all := map[string]string{labels.Origin: "rome"}
	for key, value := range object.GetLabels() {
		all[key] = value
	}
	return all
}

func (p *peer) Report(_ client.Object, _ string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.warnings = append(p.warnings, err.Error())
}

func (p *peer) Declined(client.Object, error) bool { return false }
func (p *peer) Resolved(client.Object)             {}
func (p *peer) PodsOf(string)                      {}

func (p *peer) warned(text string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, one := range p.warnings {
		if strings.Contains(one, text) {
			return true
		}
	}
	return false
}

// keeperEnv is a consumer and a provider, and the keeper with only its own rights here. The test plays the provisioner, and the volume controllers of both.
type keeperEnv struct {
	kubetest.Env // of the consumer
	milan        kubetest.Env
	peer         *peer
	keeper       *Keeper
}

func newKeeperEnv(t *testing.T) *keeperEnv {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	home, away := kubetest.Pair(t)
	connect := func(config *rest.Config) client.WithWatch {
		c, err := client.NewWithWatch(config, client.Options{Scheme: scheme})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	b := &keeperEnv{
		Env: kubetest.Env{T: t, Client: connect(home)}, milan: kubetest.Env{T: t, Client: connect(away)},
		peer: &peer{client: connect(away), remote: remote},
	}
	b.Make(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: shop}})
	b.milan.Make(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: remote}})
	for namespace, rules := range b.RBACMarkers("*.go") {
		if namespace != "" {
			namespace = shop // the role is bound in offloaded namespaces
		}
		b.Bind(user, namespace, rules)
	}
	limited := rest.CopyConfig(home)
	limited.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:authenticated"}}
	b.keeper = New(Options{Local: connect(limited), ClusterID: "milan-id", Peer: b.peer, Workers: 3})
	b.keeper.Start(t.Context(), shop, remote)
	kubetest.Start(t, "keeper", b.keeper.Run)
	return b
}

// offload offloads the namespace under another remote name; no name ends its offloading.
func (b *keeperEnv) offload(to string) {
	b.T.Helper()
	b.peer.mu.Lock()
	before := b.peer.remote
	b.peer.remote = to
	b.peer.mu.Unlock()
	if before != "" {
		b.keeper.Stop(shop, before)
	}
	if to != "" {
		b.keeper.Start(b.T.Context(), shop, to)
	}
}

// recorded waits until the volume records its data.
func (b *keeperEnv) recorded(volume *corev1.PersistentVolume) {
	b.T.Helper()
	b.Until("the volume records its data", func() bool { b.Read(volume); return volume.Annotations[labels.RemoteVolume] != "" })
}

// claim makes a claim with its volume, as scheduler, provisioner and volume controller leave them.
func (b *keeperEnv) claim(name string) (*corev1.PersistentVolumeClaim, *corev1.PersistentVolume) {
	b.T.Helper()
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: name, Labels: map[string]string{"app": "db"}},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: new("liqo"),
			Resources: corev1.VolumeResourceRequirements{Requests: sized("1Gi")},
		},
	}
	b.Make(claim)
	volume := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name: data.VolumePrefix + string(claim.UID), Labels: map[string]string{labels.RemoteClusterID: "milan-id"},
			Annotations: map[string]string{labels.RemoteStorageClass: "disk"},
		},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: sized("1Gi"), AccessModes: claim.Spec.AccessModes, StorageClassName: "liqo",
			PersistentVolumeSource:        corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/tmp/x"}},
			ClaimRef:                      &corev1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: shop, Name: name, UID: claim.UID},
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
		},
	}
	b.Make(volume)
	return claim, volume
}

// there waits for the claim at the provider.
func (b *keeperEnv) there(of *corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaim {
	b.T.Helper()
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: remote, Name: of.Name}}
	kubetest.Eventually(b.T, "the provider has claim "+of.Name, func() error {
		if err := b.milan.Get(b.T.Context(), client.ObjectKeyFromObject(claim), claim); err != nil {
			return err
		}
		if volumeOf(claim) != data.VolumePrefix+string(of.UID) {
			return fmt.Errorf("it is of %s, not of %s", volumeOf(claim), of.UID)
		}
		return nil
	})
	return claim
}

// bind is what the provider's volume controller does.
func (b *keeperEnv) bind(claim *corev1.PersistentVolumeClaim, volume string) {
	b.T.Helper()
	b.milan.Edit(claim, func() { claim.Spec.VolumeName = volume })
	b.milan.EditStatus(claim, func() { claim.Status.Phase, claim.Status.Capacity = corev1.ClaimBound, sized("2Gi") })
}

// stored makes a claim whose data is at the provider, in one of its volumes, and waits until ours records that.
func (b *keeperEnv) stored(name, disk string) (*corev1.PersistentVolumeClaim, *corev1.PersistentVolume, *corev1.PersistentVolumeClaim) {
	b.T.Helper()
	claim, volume := b.claim(name)
	there := b.there(claim)
	b.bind(there, disk)
	b.recorded(volume)
	return claim, volume, there
}

func podOf(claim *corev1.PersistentVolumeClaim) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: "db"}, Spec: corev1.PodSpec{Volumes: []corev1.Volume{{
		Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim.Name}},
	}}}}
}

func (b *keeperEnv) holds(claim *corev1.PersistentVolumeClaim, text string) {
	b.T.Helper()
	pod := podOf(claim)
	kubetest.Eventually(b.T, fmt.Sprintf("pods of claim %s: held by %q", claim.Name, text), func() error {
		err := b.keeper.Held(b.T.Context(), pod)
		if (err == nil) != (text == "") || err != nil && !strings.Contains(err.Error(), text) {
			return fmt.Errorf("held: %v", err)
		}
		return nil
	})
}

// release deletes a claim, as a user does, and releases its volume, as the volume controller does.
func (b *keeperEnv) release(claim *corev1.PersistentVolumeClaim, volume *corev1.PersistentVolume) {
	b.T.Helper()
	b.Edit(claim, func() { claim.Finalizers = nil }) // of the API server's admission: no controller removes it here
	b.Must(client.IgnoreNotFound(b.Delete(b.T.Context(), claim)))
	b.EditStatus(volume, func() { volume.Status.Phase = corev1.VolumeReleased })
}

func gone(b *kubetest.Env, what string, object client.Object) {
	b.T.Helper()
	b.Until(what, func() bool {
		err := b.Get(b.T.Context(), client.ObjectKeyFromObject(object), object)
		return apierrors.IsNotFound(err) || err == nil && object.GetDeletionTimestamp() != nil
	})
}

// TestKeeper follows claims from their first pod to their end.
func TestKeeper(t *testing.T) {
	b := newKeeperEnv(t)
	claim, volume := b.claim("data")
	there := b.there(claim)
	if *there.Spec.StorageClassName != "disk" || there.Labels["app"] != "db" ||
		there.Labels[labels.Origin] != "rome" || there.Spec.Resources.Requests.Storage().String() != "1Gi" {
		t.Errorf("claim at the provider: %+v %+v", there.Labels, there.Spec)
	}
	b.holds(claim, "") // its class may wait for the first pod
	b.bind(there, "disk-1")
	b.Until("the volume is recorded, with its size", func() bool {
		b.Read(volume)
		b.Read(claim)
		return volume.Annotations[labels.RemoteVolume] == "disk-1" &&
			volume.Spec.Capacity.Storage().String() == "2Gi" && claim.Status.Capacity.Storage().String() == "2Gi"
	})
	b.holds(claim, "")

	// The provider loses the data: no pod starts on an empty volume, and no new claim takes its place.
	b.milan.Edit(there, func() { there.Finalizers = nil })
	b.milan.Must(client.IgnoreNotFound(b.milan.Delete(t.Context(), there)))
	b.holds(claim, "is gone")
	b.Until("the user is warned", func() bool { return b.peer.warned("data is lost") })
	if err := b.milan.Get(t.Context(), client.ObjectKeyFromObject(there), there); !apierrors.IsNotFound(err) {
		t.Errorf("an empty claim has taken the place of the lost one: %v", err)
	}

	// Deleting the claim deletes the data, and then its record.
	second, secondVolume := b.claim("second")
	secondThere := b.there(second)
	b.release(second, secondVolume)
	gone(&b.milan, "the data of the deleted claim is gone", secondThere)
	b.milan.Edit(secondThere, func() { secondThere.Finalizers = nil })
	gone(&b.Env, "its record is gone", secondVolume)

	// Data that was not released stays, whatever else ends.
	third, thirdVolume := b.claim("third")
	thirdThere := b.there(third)
	b.offload("")
	b.holds(third, "known")
	b.release(third, thirdVolume)
	b.Until("the user learns that the data stays", func() bool { return b.peer.warned("stays there") })
	b.milan.Read(thirdThere)
	b.Read(thirdVolume)
	if thirdThere.DeletionTimestamp != nil || thirdVolume.DeletionTimestamp != nil {
		t.Error("data of a namespace that is no longer offloaded was deleted")
	}
	// Once the namespace is offloaded again, the user's word is carried out.
	b.offload(remote)
	gone(&b.milan, "the data of the deleted claim is gone", thirdThere)
}

// TestSuccessor: a claim of the same name as a deleted one waits for the deletion, and never gets the data of the other.
func TestSuccessor(t *testing.T) {
	b := newKeeperEnv(t)
	first, firstVolume := b.claim("data")
	there := b.there(first)
	b.milan.Edit(there, func() { there.Finalizers = append(there.Finalizers, "test.liqo.io/hold") })
	b.release(first, firstVolume)
	gone(&b.milan, "the data of the deleted claim is being deleted", there)
	second, _ := b.claim("data")
	b.holds(second, "earlier claim")
	b.milan.Edit(there, func() { there.Finalizers = nil })
	b.there(second)
	b.holds(second, "")
}

// TestSuccessorExists: the controller releases the volume of a deleted claim late, when another claim has its name. The data of the deleted one goes, and the
// other starts empty.
func TestSuccessorExists(t *testing.T) {
	b := newKeeperEnv(t)
	first, firstVolume := b.claim("data")
	there := b.there(first)
	b.Edit(first, func() { first.Finalizers = nil })
	b.Must(client.IgnoreNotFound(b.Delete(t.Context(), first)))
	second, secondVolume := b.claim("data")
	b.holds(second, "earlier claim")
	b.EditStatus(firstVolume, func() { firstVolume.Status.Phase = corev1.VolumeReleased })
	gone(&b.milan, "the data of the deleted claim is being deleted", there)
	b.milan.Edit(there, func() { there.Finalizers = nil })
	if now := b.there(second); now.UID == there.UID {
		t.Error("the successor has the data of the deleted claim")
	}
	gone(&b.Env, "the record of the deleted claim is gone", firstVolume)
	b.holds(second, "")
	b.Read(secondVolume)
}

// TestKeptMeanwhile: our cache is late, and the administrator has kept the volume of a deleted claim. Its data stays.
func TestKeptMeanwhile(t *testing.T) {
	b := newKeeperEnv(t)
	claim, volume := b.claim("data")
	there := b.there(claim)
	known := volume.DeepCopy()
	known.Status.Phase = corev1.VolumeReleased
	b.Edit(volume, func() { volume.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain })
	b.milan.Read(there)
	facts := Facts{Volume: known, Namespace: remote, Remote: there, LocalKnown: true, RemoteKnown: true}
	if _, err := b.keeper.sync(t.Context(), facts); err == nil {
		t.Error("it was not read again")
	}
	facts.Remote = nil
	if _, err := b.keeper.sync(t.Context(), facts); err == nil {
		t.Error("its record was not read again")
	}
	b.milan.Read(there)
	b.Read(volume)
	if there.DeletionTimestamp != nil || volume.DeletionTimestamp != nil {
		t.Error("the data of a kept volume was deleted")
	}
}

// TestCopy: the claim at the provider starts with the data of another one there.
func TestCopy(t *testing.T) {
	b := newKeeperEnv(t)
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: "second"}, Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, Resources: corev1.VolumeResourceRequirements{Requests: sized("1Gi")},
	}}
	volume := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pvc-2", Annotations: map[string]string{labels.RemoteStorageClass: "disk", labels.RemoteDataSource: "first"}},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: sized("1Gi"), AccessModes: claim.Spec.AccessModes, ClaimRef: &corev1.ObjectReference{Namespace: shop, Name: "second"},
			PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/dev/null"}},
		},
	}
	b.Make(volume)
	if retry, err := b.keeper.apply(t.Context(), Facts{Volume: volume, Claim: claim, Namespace: remote}); err != nil || retry != 0 {
		t.Fatal(retry, err)
	}
	there := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: remote, Name: "second"}}
	b.milan.Read(there)
	if there.Spec.DataSource == nil || there.Spec.DataSource.Kind != "PersistentVolumeClaim" || there.Spec.DataSource.Name != "first" {
		t.Errorf("source %v", there.Spec.DataSource)
	}
}

// TestLateCache: the virtual kubelet observes the volumes of this cluster late. No pod starts on a volume that a move has taken away meanwhile.
func TestLateCache(t *testing.T) {
	b := newKeeperEnv(t)
	claim, volume, _ := b.stored("data", "disk-1")
	b.holds(claim, "")
	pod := podOf(claim)
	late := &Keeper{options: b.keeper.options, volumes: b.keeper.volumes, local: b.keeper.local, remote: b.keeper.remote, queue: b.keeper.queue}
	late.options.Local = lateClient{b.keeper.options.Local, volume.Name}
	if err := late.Held(t.Context(), pod); err == nil || !strings.Contains(err.Error(), "moving") {
		t.Errorf("held: %v", err)
	}
}

// lateClient is a cluster in which a volume is gone already, and our cache does not know it.
type lateClient struct {
	client.WithWatch
	gone string
}

func (c lateClient) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	if key.Name == c.gone {
		return apierrors.NewNotFound(corev1.Resource("persistentvolumes"), key.Name)
	}
	return c.WithWatch.Get(ctx, key, object, options...)
}

// TestUnobservedClaim: a claim of the provider's own that we have not observed yet is not taken over.
func TestUnobservedClaim(t *testing.T) {
	b := newKeeperEnv(t)
	foreign := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: remote, Name: "data"}, Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources:   corev1.VolumeResourceRequirements{Requests: sized("1Gi")}, StorageClassName: new("disk"),
	}}
	b.milan.Make(foreign)
	version := foreign.ResourceVersion
	claim, volume := b.claim("data")
	facts := Facts{Volume: volume, Claim: claim, Namespace: remote, LocalKnown: true, RemoteKnown: true}
	if retry, err := b.keeper.apply(t.Context(), facts); err != nil || retry == 0 {
		t.Errorf("retry %v, %v", retry, err)
	}
	b.milan.Read(foreign)
	if foreign.ResourceVersion != version {
		t.Errorf("the claim of another was changed: %v", foreign.Annotations)
	}
}

// TestRecordedMeanwhile: a late cache does not know that a volume has data. The claim that its provider has lost is not made again, empty.
func TestRecordedMeanwhile(t *testing.T) {
	b := newKeeperEnv(t)
	claim, volume := b.claim("data")
	there := b.there(claim)
	late := volume.DeepCopy()
	b.bind(there, "disk-1")
	b.Until("the volume is recorded", func() bool { b.Read(volume); return volume.Annotations[labels.RemoteVolume] != "" })
	b.milan.Edit(there, func() { there.Finalizers = nil })
	b.milan.Must(client.IgnoreNotFound(b.milan.Delete(t.Context(), there)))
	facts := Facts{Volume: late, Claim: claim, Namespace: remote, LocalKnown: true, RemoteKnown: true}
	if retry, err := b.keeper.apply(t.Context(), facts); err != nil || retry == 0 {
		t.Errorf("retry %v, %v", retry, err)
	}
	if err := b.milan.Get(t.Context(), client.ObjectKeyFromObject(there), there); !apierrors.IsNotFound(err) {
		t.Errorf("an empty claim has taken the place of the lost one: %v", err)
	}
}

// TestForeignClaim: a claim that we did not make is neither changed nor deleted.
func TestForeignClaim(t *testing.T) {
	b := newKeeperEnv(t)
	foreign := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: remote, Name: "data"}, Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, Resources: corev1.VolumeResourceRequirements{Requests: sized("1Gi")},
	}}
	b.milan.Make(foreign)
	version := foreign.ResourceVersion
	claim, volume := b.claim("data")
	b.holds(claim, "not made for this one")
	b.release(claim, volume)
	gone(&b.Env, "the record is gone", volume)
	b.milan.Read(foreign)
	if foreign.ResourceVersion != version {
		t.Error("the claim of another was changed")
	}
}
