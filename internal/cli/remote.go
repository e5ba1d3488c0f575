// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericclioptions"

	"liqo.io/liqo/internal/action/pair"
)

// otherCluster is the other cluster of a command, chosen by flags with the prefix remote-.
type otherCluster struct {
	flags     *genericclioptions.ConfigFlags
	namespace string
}

func (f *Factory) addRemote(to *pflag.FlagSet) *otherCluster {
	s := &otherCluster{flags: genericclioptions.NewConfigFlags(true), namespace: defaultNamespace}
	s.flags.Namespace, s.flags.WrapConfigFn = &s.namespace, f.wrap
	clientFlags(to, s.flags, "remote-")
	own := to.Lookup("remote-namespace")
	own.DefValue, own.Usage = defaultNamespace, "Namespace in which Liqo is installed in the other cluster"
	return s
}

// access returns how both clusters are reached.
func (f *Factory) access(remote *otherCluster) (local, other pair.Access, err error) {
	local.Namespace, other.Namespace = f.namespace(), remote.namespace
	if local.Client, err = f.client(); err != nil {
		return local, other, fmt.Errorf("(local) %w", err)
	}
	config, err := configOf(remote.flags)
	if err != nil {
		return local, other, fmt.Errorf("(remote) %w", err)
	}
	if other.Client, err = clientOf(config); err != nil {
		return local, other, fmt.Errorf("(remote) %w", err)
	}
	return local, other, nil
}

// remoteChosen reports whether a flag chooses the other cluster.
func remoteChosen(flags *pflag.FlagSet) (chosen bool) {
	flags.Visit(func(flag *pflag.Flag) {
		chosen = chosen || strings.HasPrefix(flag.Name, "remote-") && flag.Name != "remote-namespace"
	})
	return chosen
}
