// SPDX-License-Identifier: Apache-2.0

package role

import (
	"fmt"
	"os"
	"strings"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"liqo.io/liqo/internal/kube/domain"
)

// ClusterResolver is resolverOf for a process that works without: peers then find Services of this cluster by short names only.
func ClusterResolver(log logr.Logger) domain.Resolver {
	found, err := ResolverOf(domain.File)
	if err != nil {
		log.Info("the domain of this cluster is not known, so its pods find Services in peers by short names only", "reason", err.Error())
	}
	return found
}

// ParseService reads NAMESPACE/NAME.
func ParseService(text string) (types.NamespacedName, error) {
	namespace, name, _ := strings.Cut(text, "/")
	if len(validation.IsDNS1123Label(namespace)) > 0 || len(validation.IsDNS1035Label(name)) > 0 {
		return types.NamespacedName{}, fmt.Errorf("%q: want NAMESPACE/NAME of a Service, such as kube-system/kube-dns", text)
	}
	return types.NamespacedName{Namespace: namespace, Name: name}, nil
}

// ResolverOf reads what the kubelet has written for this pod.
func ResolverOf(file string) (domain.Resolver, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return domain.Resolver{}, fmt.Errorf("read the domain of this cluster: %w", err)
	}
	return domain.Parse(string(text))
}
