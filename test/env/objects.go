// SPDX-License-Identifier: Apache-2.0

package env

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Images that pods of tests may be of, beside the product's.
const (
	TrafficImage = "localhost/traffic:dev"
	ToolsImage   = "playground.local/tools:1" // a shell, curl, dig, busybox; its own command waits
)

// Load puts an image into all nodes of these clusters: an archive, or the name of one that the playground ships.
func (b *Env) Load(image string) error {
	args := []string{"load", image}
	for _, c := range b.Clusters {
		args = append(args, c.Name)
	}
	if r := b.Playground(args...); r.Code != 0 {
		return errors.New(r.String())
	}
	return nil
}

// ID is the cluster's ID.
func (c *Cluster) ID(t testing.TB) string {
	t.Helper()
	return c.Kubectl(t, "-n", "liqo", "get", "configmap", "liqo-clusterid-configmap", "-o", "jsonpath={.data.CLUSTER_ID}")
}

// Command prepares kubectl against the cluster, for what runs longer than a question takes.
func (c *Cluster) Command(ctx context.Context, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, filepath.Join(c.env.Tools, "kubectl"), append([]string{"--kubeconfig", c.kubeconfig}, args...)...)
}

// kindOf reads GROUP/VERSION/Kind, or v1/Kind.
func kindOf(kind string) schema.GroupVersionKind {
	at := strings.LastIndex(kind, "/")
	gv, err := schema.ParseGroupVersion(kind[:at])
	if err != nil {
		panic(err) // it stands in the test
	}
	return gv.WithKind(kind[at+1:])
}

// Object is what `kubectl get -o json` prints of an object; the kind is written apps/v1/Deployment.
func (c *Cluster) Object(kind, namespace, name string) (*unstructured.Unstructured, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(kindOf(kind))
	if err := c.API.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, object); err != nil {
		return nil, fmt.Errorf("get %s %s/%s in %s: %w", kind, namespace, name, c.Name, err)
	}
	return object, nil
}

// Objects are all of a kind in a namespace.
func (c *Cluster) Objects(kind, namespace string) ([]unstructured.Unstructured, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(kindOf(kind + "List"))
	if err := c.API.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("list %s of %s in %s: %w", kind, namespace, c.Name, err)
	}
	return list.Items, nil
}

// Seen is when a watch observed something for the first time.
type Seen struct {
	at chan time.Time
}

// Watch waits in the background for the first object of a list that satisfies; at most two minutes.
func (c *Cluster) Watch(t testing.TB, list client.ObjectList, namespace string, satisfies func(client.Object) bool) Seen {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	stream, err := c.API.Watch(ctx, list, client.InNamespace(namespace))
	if err != nil {
		t.Fatal(err)
	}
	seen := Seen{make(chan time.Time, 1)}
	go func() {
		defer cancel()
		defer stream.Stop()
		defer close(seen.at)
		for event := range stream.ResultChan() {
			if object, ok := event.Object.(client.Object); ok && event.Type != watch.Deleted && satisfies(object) {
				seen.at <- time.Now()
				return
			}
		}
	}()
	return seen
}

// Wait returns when it was seen.
func (s Seen) Wait(t testing.TB, within time.Duration, what string) time.Time {
	t.Helper()
	late := time.NewTimer(within)
	defer late.Stop()
	select {
	case at, ok := <-s.at:
		if !ok {
			t.Fatalf("the watch ended before %s", what)
		}
		return at
	case <-late.C:
		t.Fatalf("not within %v: %s", within, what)
	}
	return time.Time{}
}

// Condition returns the status of a pod's condition.
func Condition(pod *corev1.Pod, kind corev1.PodConditionType) corev1.ConditionStatus {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == kind {
			return condition.Status
		}
	}
	return corev1.ConditionUnknown
}
