// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
)

// passing are kinds whose objects come and go by themselves.
var passing = []string{"events", "pods", "replicasets", "controllerrevisions", "endpointslices", "endpoints", "leases", "componentstatuses"}

// objects lists every object of the cluster as group/resource namespace/name; passing kinds only where they are ours.
func (c *cluster) objects(t testing.TB) []string {
	t.Helper()
	disco, err := discovery.NewDiscoveryClientForConfig(c.config)
	if err != nil {
		t.Fatal(err)
	}
	lists, err := disco.ServerPreferredResources()
	if err != nil {
		t.Logf("discovery of %s is not complete: %v", c.Name, err)
	}
	meta, err := metadata.NewForConfig(c.config)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		for _, resource := range list.APIResources {
			if !slices.Contains(resource.Verbs, "list") || gv.Group == "metrics.k8s.io" || resource.Name == "events" {
				continue
			}
			found, err := meta.Resource(gv.WithResource(resource.Name)).List(context.Background(), metav1.ListOptions{})
			if err != nil {
				continue // gone between discovery and now
			}
			for _, item := range found.Items {
				line := gv.Group + "/" + resource.Name + " " + item.Namespace + "/" + item.Name
				if !slices.Contains(passing, resource.Name) || strings.Contains(line, "liqo") {
					all = append(all, line)
				}
			}
		}
	}
	slices.Sort(all)
	return all
}

// added returns what is in now and was not before.
func added(before, now []string) (extra []string) {
	for _, line := range now {
		if _, was := slices.BinarySearch(before, line); !was {
			extra = append(extra, line)
		}
	}
	return extra
}

// nothingNew waits until the cluster has no object that it had not before.
func (c *cluster) nothingNew(t testing.TB, before []string, within time.Duration) {
	t.Helper()
	eventually(t, within, "no object is left over in "+c.Name, func() (string, bool) {
		extra := added(before, c.objects(t))
		return strings.Join(extra, "\n            "), len(extra) == 0
	})
}
