// SPDX-License-Identifier: Apache-2.0

package quantities_test

import (
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/liqo/internal/kube/quantities"
)

func TestIn(t *testing.T) {
	type itself struct{ Next *itself }
	for what, test := range map[reflect.Type]bool{
		reflect.TypeFor[corev1.Pod]():                            true,
		reflect.TypeFor[corev1.PodList]():                        true,
		reflect.TypeFor[*corev1.PersistentVolumeClaim]():         true,
		reflect.TypeFor[corev1.Node]():                           true,
		reflect.TypeFor[[1]corev1.ResourceList]():                true,
		reflect.TypeFor[corev1.Service]():                        false,
		reflect.TypeFor[corev1.SecretList]():                     false,
		reflect.TypeFor[networkingv1.Ingress]():                  false,
		reflect.TypeFor[metav1.Status]():                         false,
		reflect.TypeFor[metav1.WatchEvent]():                     false,
		reflect.TypeFor[itself]():                                false,
		reflect.TypeFor[map[string]corev1.ObjectFieldSelector](): false,
	} {
		if got := quantities.In(what); got != test {
			t.Errorf("%v: %t", what, got)
		}
	}
}
