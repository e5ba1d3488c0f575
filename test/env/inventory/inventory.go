// SPDX-License-Identifier: Apache-2.0

// Package inventory lists every object of a cluster, to find what an installation or a peering left behind.
//
// It knows the API of Kubernetes alone. Proof: test/e2e and test/install, which uninstall Liqo and find nothing.
package inventory

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
)

// passing are kinds whose objects come and go by themselves.
var passing = []string{"events", "pods", "replicasets", "controllerrevisions", "endpointslices", "endpoints", "leases", "componentstatuses"}

// madeUp is what a ReplicaSet adds to its name.
var madeUp = regexp.MustCompile(`-[a-z0-9]{5}$`)

// metricsGroup holds what metrics-server measures.
const metricsGroup = "metrics.k8s.io"

// Everything lists every object of a cluster as group/resource namespace/name; passing kinds only where they are ours. It fails if there is a kind
// that it could not list: what is not seen is not gone.
func Everything(config *rest.Config) (all []string, err error) {
	disco, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	lists, err := disco.ServerPreferredResources()
	var failed *discovery.ErrGroupDiscoveryFailed
	if errors.As(err, &failed) { // metrics-server is away at times, and has no objects of its own
		maps.DeleteFunc(failed.Groups, func(gv schema.GroupVersion, _ error) bool { return gv.Group == metricsGroup })
		if len(failed.Groups) == 0 {
			err = nil
		}
	}
	if err != nil {
		return nil, err
	}
	meta, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, err
		}
		for _, resource := range list.APIResources {
			// Requests for certificates are Kubernetes' to take away, as those of its own kubelets: it keeps them for an hour.
			kept := resource.Name == "events" || resource.Name == "certificatesigningrequests"
			if !slices.Contains(resource.Verbs, "list") || gv.Group == metricsGroup || kept {
				continue
			}
			found, err := meta.Resource(gv.WithResource(resource.Name)).List(context.Background(), metav1.ListOptions{})
			if apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) {
				continue // the kind went between discovery and now
			}
			if err != nil {
				return nil, fmt.Errorf("list %s: %w", resource.Name, err)
			}
			for _, item := range found.Items {
				name := item.Name
				if resource.Name == "pods" {
					name = madeUp.ReplaceAllString(name, "-*") // a pod that was killed has a successor
				}
				line := gv.Group + "/" + resource.Name + " " + item.Namespace + "/" + name
				if !slices.Contains(passing, resource.Name) || strings.Contains(line, "liqo") {
					all = append(all, line)
				}
			}
		}
	}
	slices.Sort(all)
	return all, nil
}

// ofToken reports whether an object is a record of tokens that were printed: it lasts until they have ended, a day, or until Liqo is removed.
func ofToken(line string) bool {
	return strings.HasPrefix(line, "/secrets ") && strings.HasSuffix(line, "/liqo-peer-tokens") ||
		strings.HasPrefix(line, "/configmaps ") && strings.Contains(line, "/peer-token-")
}

// Added returns what is in now and was not before.
func Added(before, now []string) (extra []string) {
	for _, line := range now {
		if ofToken(line) {
			continue
		}
		if _, was := slices.BinarySearch(before, line); !was {
			extra = append(extra, line)
		}
	}
	return extra
}
