// SPDX-License-Identifier: Apache-2.0

package metricagent

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	klabels "k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/apis/labels"
)

// CacheOptions restricts the cache to what the agent reads: owners of namespaces, pods of peers, addresses of kubelets.
func CacheOptions() (cache.Options, error) {
	ofPeers, err := klabels.NewRequirement(labels.Origin, selection.Exists, nil)
	if err != nil {
		return cache.Options{}, err
	}
	return cache.Options{ByObject: map[client.Object]cache.ByObject{
		&corev1.Namespace{}: {Transform: trim},
		&corev1.Node{}:      {Transform: trim},
		&corev1.Pod{}:       {Transform: trim, Label: klabels.NewSelector().Add(*ofPeers)},
	}}, nil
}

func trim(in any) (any, error) {
	meta := func(from *metav1.ObjectMeta) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: from.Name, Namespace: from.Namespace, UID: from.UID, ResourceVersion: from.ResourceVersion, Labels: from.Labels}
	}
	switch object := in.(type) {
	case *corev1.Namespace:
		return &corev1.Namespace{ObjectMeta: meta(&object.ObjectMeta)}, nil
	case *corev1.Node:
		return &corev1.Node{ObjectMeta: meta(&object.ObjectMeta), Status: corev1.NodeStatus{
			Addresses: object.Status.Addresses, DaemonEndpoints: object.Status.DaemonEndpoints,
		}}, nil
	case *corev1.Pod:
		return &corev1.Pod{ObjectMeta: meta(&object.ObjectMeta), Spec: corev1.PodSpec{NodeName: object.Spec.NodeName}}, nil
	}
	return in, nil // DeletedFinalStateUnknown
}

// Watch starts to fill the cache.
func Watch(ctx context.Context, informers cache.Informers) error {
	for _, object := range []client.Object{&corev1.Namespace{}, &corev1.Node{}, &corev1.Pod{}} {
		if _, err := informers.GetInformer(ctx, object, cache.BlockUntilSynced(false)); err != nil {
			return fmt.Errorf("watch %T: %w", object, err)
		}
	}
	return nil
}

// KubeletConfig returns the configuration for requests to kubelets: with the identity of this process, and only to kubelets whose certificate the
// cluster's authority signed, unless insecure.
func KubeletConfig(home *rest.Config, insecure bool) *rest.Config {
	config := rest.AnonymousClientConfig(home)
	config.BearerToken, config.BearerTokenFile = home.BearerToken, home.BearerTokenFile
	config.CertData, config.KeyData, config.CertFile, config.KeyFile = home.CertData, home.KeyData, home.CertFile, home.KeyFile
	// The certificate is verified for the address of the kubelet.
	config.ServerName, config.Host, config.APIPath = "", "", ""
	config.Proxy = nil
	if insecure {
		config.TLSClientConfig = rest.TLSClientConfig{
			Insecure: true, CertData: config.CertData, KeyData: config.KeyData, CertFile: config.CertFile, KeyFile: config.KeyFile,
		}
	}
	return config
}
