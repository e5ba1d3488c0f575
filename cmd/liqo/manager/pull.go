// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"fmt"
	"slices"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"liqo.io/liqo/internal/offloading/kubelet"
	"liqo.io/liqo/internal/offloading/pullsecret"
)

// pullOptions are how nodes pull the images of pods that the controller manager makes: with which Secrets of the install namespace, and when the image of pods
// that move a volume.
type pullOptions struct {
	names  []string
	policy string
}

func (o *pullOptions) Register(flags *pflag.FlagSet) {
	flags.StringVar(&o.policy, "volume-mover-pull-policy", string(corev1.PullIfNotPresent), "when that image is pulled: Always, IfNotPresent or Never")
	flags.StringSliceVar(&o.names, "image-pull-secret", nil, "Secret of the namespace of Liqo with which nodes pull its images; may be repeated. "+
		"Virtual kubelets have a copy; a volume moves with a Secret of that name in its own namespace")
}

func (o *pullOptions) Validate() error {
	if !slices.Contains([]string{string(corev1.PullAlways), string(corev1.PullIfNotPresent), string(corev1.PullNever)}, o.policy) {
		return fmt.Errorf("--volume-mover-pull-policy %q must be Always, IfNotPresent or Never", o.policy)
	}
	for _, name := range o.names {
		if len(validation.IsDNS1123Subdomain(name)) > 0 {
			return fmt.Errorf("--image-pull-secret %q: want the name of a Secret", name)
		}
	}
	return nil
}

// with adds the Secret beside each virtual kubelet to its options.
func (o *pullOptions) with(of kubelet.Options) kubelet.Options {
	if len(o.names) > 0 {
		of.PullSecret = pullsecret.Name
	}
	return of
}

func (o *pullOptions) setup(mgr manager.Manager, namespace string) error {
	return pullsecret.Setup(mgr, pullsecret.Options{Namespace: namespace, Secrets: o.names})
}

// references are the names as a pod has them.
func (o *pullOptions) references() (all []corev1.LocalObjectReference) {
	for _, name := range o.names {
		all = append(all, corev1.LocalObjectReference{Name: name})
	}
	return all
}
