// SPDX-License-Identifier: Apache-2.0

// Package actiontest is what the tests of actions share: a recorder of progress, a cluster with the objects of the chart, and
// what controllers do to them. No product code imports it.
package actiontest

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	offloadingv1alpha1 "liqo.io/liqo/apis/offloading/v1alpha1"
	sharingv1alpha1 "liqo.io/liqo/apis/sharing/v1alpha1"
	storagev1alpha1 "liqo.io/liqo/apis/storage/v1alpha1"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
)

const (
	LocalID   = "11111111-1111-4111-8111-111111111111"
	RemoteID  = "22222222-2222-4222-8222-222222222222"
	Namespace = "liqo"
)

func Connect(t *testing.T, config *rest.Config) client.WithWatch {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, discoveryv1alpha1.AddToScheme, netv1alpha1.AddToScheme,
		sharingv1alpha1.AddToScheme, offloadingv1alpha1.AddToScheme, storagev1alpha1.AddToScheme, vkv1alpha1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	c, err := client.NewWithWatch(config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Installed returns a client of a cluster with the objects of the chart that actions read.
func Installed(t *testing.T, config *rest.Config) client.WithWatch {
	t.Helper()
	c := Connect(t, config)
	Ensure(t, c, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: Namespace}})
	Create(t, c, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: "liqo-clusterid-configmap", Labels: map[string]string{labels.AppName: "clusterid-configmap"}},
		Data:       map[string]string{"CLUSTER_ID": LocalID, "CLUSTER_NAME": "rome"},
	})
	t.Cleanup(func() {
		ctx := context.Background()
		for _, object := range []client.Object{&discoveryv1alpha1.ForeignCluster{}, &corev1.Node{}} {
			if err := c.DeleteAllOf(ctx, object); err != nil {
				t.Error(err)
			}
		}
		for _, object := range []client.Object{&corev1.Secret{}, &corev1.Service{}, &sharingv1alpha1.ResourceSlice{}} {
			if err := c.DeleteAllOf(ctx, object, client.InNamespace(Namespace)); err != nil {
				t.Error(err)
			}
		}
	})
	return c
}

func Ensure(t *testing.T, c client.Client, object client.Object) {
	t.Helper()
	if err := client.IgnoreAlreadyExists(c.Create(t.Context(), object)); err != nil {
		t.Fatal(err)
	}
}

// Create creates an object and deletes it after the test.
func Create(t *testing.T, c client.Client, object client.Object) {
	t.Helper()
	if err := c.Create(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.IgnoreNotFound(c.Delete(context.Background(), object)); err != nil {
			t.Error(err)
		}
	})
}

// Recorder is a Progress that keeps the reported lines.
type Recorder struct {
	mutex sync.Mutex
	Lines []string
}

func (r *Recorder) add(kind, text string) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.Lines = append(r.Lines, kind+" "+text)
}

func (r *Recorder) Start(text string) { r.add("...", text) }

func (r *Recorder) Done(text string) { r.add("INFO", text) }

func (r *Recorder) Info(text string) { r.add("INFO", text) }

func (r *Recorder) Warn(text string) { r.add("WARN", text) }

func (r *Recorder) Stop() { r.add("...", "stopped") }

func (r *Recorder) Text() string {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return strings.Join(r.Lines, "\n")
}

func Condition(kind discoveryv1alpha1.PeeringConditionType, status discoveryv1alpha1.PeeringConditionStatus,
	message string,
) discoveryv1alpha1.PeeringCondition {
	return discoveryv1alpha1.PeeringCondition{Type: kind, Status: status, Message: message, LastTransitionTime: metav1.Now()}
}

// SetStatus does the work of the controller: it waits for the object, sets its conditions, and records the observed spec.
func SetStatus(ctx context.Context, c client.Client, name string, ready func(*discoveryv1alpha1.ForeignCluster) bool,
	conditions ...discoveryv1alpha1.PeeringCondition,
) error {
	return Eventually(ctx, func(ctx context.Context) error {
		var fc discoveryv1alpha1.ForeignCluster
		if err := c.Get(ctx, client.ObjectKey{Name: name}, &fc); err != nil {
			return err
		}
		if ready != nil && !ready(&fc) {
			return fmt.Errorf("ForeignCluster %s is not in the expected state: %+v", name, fc.Spec)
		}
		for _, next := range conditions {
			kept := fc.Status.PeeringConditions[:0:0]
			for _, old := range fc.Status.PeeringConditions {
				if old.Type != next.Type {
					kept = append(kept, old)
				}
			}
			fc.Status.PeeringConditions = append(kept, next)
		}
		fc.Status.ObservedGeneration = fc.Generation
		return c.Status().Update(ctx, &fc)
	})
}

func Eventually(ctx context.Context, check func(context.Context) error) error {
	for {
		err := check(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ctx.Err(), err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func Wants(outgoing discoveryv1alpha1.PeeringEnabled) func(*discoveryv1alpha1.ForeignCluster) bool {
	return func(fc *discoveryv1alpha1.ForeignCluster) bool { return fc.Spec.OutgoingPeeringEnabled == outgoing }
}

// Inventory lists all objects that a peering command could change.
func Inventory(t *testing.T, c client.Client) string {
	t.Helper()
	var (
		lines   []string
		fcs     discoveryv1alpha1.ForeignClusterList
		secrets corev1.SecretList
		maps    corev1.ConfigMapList
		spaces  corev1.NamespaceList
	)
	for _, list := range []client.ObjectList{&fcs, &secrets, &maps, &spaces} {
		if err := c.List(t.Context(), list); err != nil {
			t.Fatal(err)
		}
	}
	for _, o := range fcs.Items {
		lines = append(lines, "fc "+o.Name+" "+o.ResourceVersion)
	}
	for _, o := range secrets.Items {
		lines = append(lines, "secret "+o.Namespace+"/"+o.Name+" "+o.ResourceVersion)
	}
	for _, o := range maps.Items {
		lines = append(lines, "configmap "+o.Namespace+"/"+o.Name+" "+o.ResourceVersion)
	}
	for _, o := range spaces.Items {
		lines = append(lines, "namespace "+o.Name)
	}
	return strings.Join(lines, "\n")
}

func Node(name, address string, ready corev1.ConditionStatus) corev1.Node {
	return corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{
		Addresses:  []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}},
		Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}},
	}}
}

func Known(name, id string, kind discoveryv1alpha1.PeeringType, discovery string) *discoveryv1alpha1.ForeignCluster {
	return &discoveryv1alpha1.ForeignCluster{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{labels.ClusterID: id, labels.DiscoveryType: discovery}},
		Spec: discoveryv1alpha1.ForeignClusterSpec{
			PeeringType: kind, ForeignAuthURL: "https://192.0.2.9",
			ClusterIdentity: &discoveryv1alpha1.ClusterIdentity{ClusterID: id, ClusterName: name},
		},
	}
}
