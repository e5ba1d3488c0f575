// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"errors"
	"fmt"
	"net"
	"strconv"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Options is what all virtual kubelets of a cluster have in common.
type Options struct {
	// Image of the virtual kubelet: the one of the controller manager, so that the two are never of different releases.
	Image string
	// PullPolicy of the image; empty means IfNotPresent.
	PullPolicy string
	// PullSecret is the Secret beside each virtual kubelet with which its node pulls the image; empty for none.
	PullSecret string
	// ExtraAnnotations, ExtraLabels and ExtraArgs are added to its pods.
	ExtraAnnotations, ExtraLabels map[string]string
	ExtraArgs                     []string
	// Quantities as Kubernetes writes them; empty means none.
	CPURequests, CPULimits, RAMRequests, RAMLimits string
	// MetricsEnabled serves metrics at MetricsAddress.
	MetricsEnabled bool
	MetricsAddress string
}

// Register adds the documented flags.
func (o *Options) Register(flags *pflag.FlagSet) {
	flags.StringVar(&o.Image, "kubelet-image", "", "image of the virtual kubelets")
	flags.StringVar(&o.PullPolicy, "kubelet-image-pull-policy", string(corev1.PullIfNotPresent), "when nodes pull it: IfNotPresent, Always or Never")
	flags.StringToStringVar(&o.ExtraAnnotations, "kubelet-extra-annotations", nil, "annotations of the virtual kubelets' pods (KEY=VALUE,...)")
	flags.StringToStringVar(&o.ExtraLabels, "kubelet-extra-labels", nil, "labels of the virtual kubelets' pods (KEY=VALUE,...)")
	flags.StringArrayVar(&o.ExtraArgs, "kubelet-extra-args", nil, "one more argument of the virtual kubelets; may be repeated")
	flags.StringVar(&o.CPURequests, "kubelet-cpu-requests", "", "CPU that a virtual kubelet requests")
	flags.StringVar(&o.CPULimits, "kubelet-cpu-limits", "", "CPU that a virtual kubelet may use")
	flags.StringVar(&o.RAMRequests, "kubelet-ram-requests", "", "memory that a virtual kubelet requests")
	flags.StringVar(&o.RAMLimits, "kubelet-ram-limits", "", "memory that a virtual kubelet may use")
	flags.BoolVar(&o.MetricsEnabled, "kubelet-metrics-enabled", false, "virtual kubelets serve metrics")
	flags.StringVar(&o.MetricsAddress, "kubelet-metrics-address", ":5872", "address of the virtual kubelets' metrics")
}

// Validate refuses what cannot work.
func (o *Options) Validate() error {
	switch o.pullPolicy() {
	case corev1.PullIfNotPresent, corev1.PullAlways, corev1.PullNever:
	default:
		return fmt.Errorf("--kubelet-image-pull-policy %q: want IfNotPresent, Always or Never", o.PullPolicy)
	}
	if o.Image == "" {
		return errors.New("--kubelet-image must not be empty")
	}
	if _, err := o.metricsPort(); err != nil && o.MetricsEnabled {
		return fmt.Errorf("--kubelet-metrics-address %q: want :PORT", o.MetricsAddress)
	}
	for flag, text := range map[string]string{
		"--kubelet-cpu-requests": o.CPURequests, "--kubelet-cpu-limits": o.CPULimits,
		"--kubelet-ram-requests": o.RAMRequests, "--kubelet-ram-limits": o.RAMLimits,
	} {
		if text == "" {
			continue
		}
		if quantity, err := resource.ParseQuantity(text); err != nil || quantity.Sign() < 0 {
			return fmt.Errorf("%s %q: want a quantity such as 100m or 64Mi", flag, text)
		}
	}
	return nil
}

// metricsPort is the port of MetricsAddress.
func (o *Options) metricsPort() (int32, error) {
	_, text, err := net.SplitHostPort(o.MetricsAddress)
	if err != nil {
		return 0, err
	}
	port, err := strconv.ParseUint(text, 10, 16)
	return int32(port), err
}

func (o *Options) pullPolicy() corev1.PullPolicy {
	if o.PullPolicy == "" {
		return corev1.PullIfNotPresent
	}
	return corev1.PullPolicy(o.PullPolicy)
}
