// SPDX-License-Identifier: Apache-2.0

package access

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/internal/action/foreign"
)

// CompletePeers offers the names of ForeignClusters that are not in the arguments yet.
func (f *Factory) CompletePeers(most int) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
		if most > 0 && len(args) >= most {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		c, err := f.Client()
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
		defer cancel()
		names, err := foreign.Names(ctx, c)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		names = slices.DeleteFunc(names, func(name string) bool { return slices.Contains(args, name) })
		return withPrefix(names, prefix), cobra.ShellCompDirectiveNoFileComp
	}
}

// completionTimeout is short, because the user who pressed the tab key waits.
const completionTimeout = 3 * time.Second

func (f *Factory) completeNamespaces(cmd *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
	return f.completeObjects(cmd, prefix, &corev1.NamespaceList{})
}

// CompleteNodes offers the nodes of the cluster, virtual ones included.
func (f *Factory) CompleteNodes(cmd *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
	return f.completeObjects(cmd, prefix, &corev1.NodeList{})
}

// CompleteClaim offers the claims of the chosen namespace, for the first argument.
func (f *Factory) CompleteClaim(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	namespace, err := f.ClaimNamespace(cmd)
	if err != nil || len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return f.completeObjects(cmd, prefix, &corev1.PersistentVolumeClaimList{}, client.InNamespace(namespace))
}

// completeObjects offers the names of objects with the prefix.
func (f *Factory) completeObjects(cmd *cobra.Command, prefix string, all client.ObjectList, in ...client.ListOption) ([]string, cobra.ShellCompDirective) {
	c, err := f.Client()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
	defer cancel()
	if err := c.List(ctx, all, in...); err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var names []string
	err = meta.EachListItem(all, func(object runtime.Object) error {
		one, err := meta.Accessor(object)
		if err == nil {
			names = append(names, one.GetName())
		}
		return err
	})
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return withPrefix(names, prefix), cobra.ShellCompDirectiveNoFileComp
}

// withPrefix returns the sorted words with the prefix.
func withPrefix(words []string, prefix string) (fit []string) {
	for _, word := range slices.Sorted(slices.Values(words)) {
		if strings.HasPrefix(word, prefix) {
			fit = append(fit, word)
		}
	}
	return fit
}

func (f *Factory) CompleteOneNamespace(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return f.completeNamespaces(cmd, args, prefix)
}
