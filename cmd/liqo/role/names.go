// SPDX-License-Identifier: Apache-2.0

package role

import (
	"fmt"
	"os"
	"strings"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	offloadingv1alpha1 "liqo.io/liqo/apis/offloading/v1alpha1"
	sharingv1alpha1 "liqo.io/liqo/apis/sharing/v1alpha1"
	storagev1alpha1 "liqo.io/liqo/apis/storage/v1alpha1"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/kube/domain"
)

func NewScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, discoveryv1alpha1.AddToScheme, netv1alpha1.AddToScheme,
		sharingv1alpha1.AddToScheme, offloadingv1alpha1.AddToScheme, storagev1alpha1.AddToScheme, vkv1alpha1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	return scheme, nil
}

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
