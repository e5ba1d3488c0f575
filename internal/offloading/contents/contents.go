// SPDX-License-Identifier: Apache-2.0

// Package contents decides what the deletion of a remote namespace would lose, from the metadata of the objects in it. liqoctl asks for it with an
// annotation, and the controller manager answers in a status: the two agree on what this package states.
//
// It must not know how objects are listed, nor what a command does with the answer. What a provider chooses is bounded and printable in every answer.
// contents_test.go and a fuzz test prove it.
package contents

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	"liqo.io/liqo/apis/labels"
	offloadingv1alpha1 "liqo.io/liqo/apis/offloading/v1alpha1"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/kube/printable"
	"liqo.io/liqo/internal/offloading/kinds"
)

// Kinds returns the kinds that are counted: those that a consumer may list in its remote namespaces at every provider.
func Kinds() (all []schema.GroupVersionKind) {
	for _, kind := range kinds.Where(func(kind *kinds.Kind) bool { return kind.Content }) {
		all = append(all, kind.Local.GroupVersionKind)
	}
	return all
}

const (
	// maxNames is how many objects are named.
	maxNames = 10
	// maxError bounds the text of an error, in bytes; maxWord that which identifies a request.
	maxError, maxWord = 500, 64
)

// Held is a remote namespace that exists at a provider.
type Held struct {
	// Cluster is the unique name of the provider, ClusterID its ID.
	Cluster, ClusterID string
	// Namespace is the name there.
	Namespace string
	// Desired: this cluster still requests it.
	Desired bool
}

// HeldBy returns the existing remote namespaces of a local one, from the maps of this cluster.
func HeldBy(maps []vkv1alpha1.NamespaceMap, namespace string) (held []Held) {
	for i := range maps {
		namespaceMap := &maps[i]
		current, mapped := namespaceMap.Status.CurrentMapping[namespace]
		if mapped && current.RemoteNamespace != "" && current.Phase != vkv1alpha1.MappingCreationLoopBackOff {
			_, desired := namespaceMap.Spec.DesiredMapping[namespace]
			held = append(held, Held{namespaceMap.Name, namespaceMap.Labels[labels.RemoteID], current.RemoteNamespace, desired})
		}
	}
	return held
}

// Ask returns the value of the annotation labels.CountRemoteContents. The request must be a word that no earlier request had.
func Ask(request string, clusters []string) string {
	return strings.Join(append([]string{request}, clusters...), " ")
}

// Asked returns the request in the annotations of a NamespaceOffloading, and the clusters that it names. The request is empty if there is none.
func Asked(annotations map[string]string) (request string, clusters []string) {
	words := strings.Fields(annotations[labels.CountRemoteContents])
	if len(words) == 0 || len(words[0]) > maxWord {
		return "", nil
	}
	return words[0], words[1:]
}

// Tally counts the objects of one remote namespace.
type Tally struct {
	// Consumer is the ID of this cluster.
	Consumer string
	// Volumes are the names of the volumes of this cluster whose data is at the provider.
	Volumes []string

	copies         map[string]int32
	claims, others offloadingv1alpha1.FoundObjects
}

// injected are the ConfigMaps that clusters create in every namespace.
var injected = []string{"kube-root-ca.crt", "openshift-service-ca.crt", "istio-ca-root-cert"}

// Add counts one object.
func (t *Tally) Add(kind string, object metav1.Object) {
	switch annotated := object.GetAnnotations(); {
	case kind == "ConfigMap" && slices.Contains(injected, object.GetName()):
	case kind == "Secret" && annotated[corev1.ServiceAccountNameKey] != "" && object.GetLabels()[labels.Origin] == "":
	case kind == "PersistentVolumeClaim" && slices.Contains(t.Volumes, annotated[labels.VirtualVolume]):
	case kind == "PersistentVolumeClaim":
		add(&t.claims, name(object))
	case object.GetLabels()[labels.Origin] == t.Consumer:
		if t.copies == nil {
			t.copies = map[string]int32{}
		}
		t.copies[kind]++
	default:
		add(&t.others, kind+" "+name(object))
	}
}

func add(to *offloadingv1alpha1.FoundObjects, name string) {
	if to.Count++; len(to.Names) < maxNames {
		to.Names = append(to.Names, name)
	}
}

// name is the name of an object of the counted kinds. No API server has others.
func name(object metav1.Object) string {
	if len(validation.IsDNS1123Subdomain(object.GetName())) > 0 {
		return "(invalid name)"
	}
	return object.GetName()
}

// Contents returns what was counted.
func (t *Tally) Contents(namespace string) offloadingv1alpha1.RemoteNamespaceContents {
	found := offloadingv1alpha1.RemoteNamespaceContents{RemoteNamespace: namespace, Copies: t.copies}
	if t.claims.Count > 0 {
		found.Claims = &t.claims
	}
	if t.others.Count > 0 {
		found.Others = &t.others
	}
	return found
}

// Unread is the answer about a namespace that could not be read.
func Unread(namespace string, err error) offloadingv1alpha1.RemoteNamespaceContents {
	text := printable.Line(err.Error(), maxError)
	if text == "" {
		text = "it could not be read"
	}
	return offloadingv1alpha1.RemoteNamespaceContents{RemoteNamespace: namespace, Error: text}
}

// Answered returns the contents of a remote namespace in the answer to a request. An answer to another request is none, and an error.
func Answered(answer *offloadingv1alpha1.RemoteContents, request string, held Held) (offloadingv1alpha1.RemoteNamespaceContents, error) {
	if answer == nil || answer.Request != request {
		return offloadingv1alpha1.RemoteNamespaceContents{}, fmt.Errorf("there is no answer to request %s", request)
	}
	found, counted := answer.Clusters[held.Cluster]
	switch {
	case !counted || found.RemoteNamespace != held.Namespace:
		return found, fmt.Errorf("the controller manager did not count its objects; run the command again")
	case found.Error != "":
		return found, fmt.Errorf("%s", found.Error)
	}
	return found, nil
}
