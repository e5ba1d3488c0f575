// SPDX-License-Identifier: Apache-2.0

package access

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericclioptions"

	"liqo.io/liqo/internal/action/pair"
)

// Other is the other cluster of a command, chosen by flags with the prefix remote-.
type Other struct {
	Flags     *genericclioptions.ConfigFlags
	Namespace string
}

func (f *Factory) AddRemote(to *pflag.FlagSet) *Other {
	s := &Other{Flags: genericclioptions.NewConfigFlags(true), Namespace: defaultNamespace}
	s.Flags.Namespace, s.Flags.WrapConfigFn = &s.Namespace, f.wrap
	clientFlags(to, s.Flags, "remote-")
	own := to.Lookup("remote-namespace")
	own.DefValue, own.Usage = defaultNamespace, "Namespace in which Liqo is installed in the other cluster"
	return s
}

// Both returns how both clusters are reached.
func (f *Factory) Both(remote *Other) (local, other pair.Access, err error) {
	local.Namespace, other.Namespace = f.Namespace(), remote.Namespace
	if local.Client, err = f.Client(); err != nil {
		return local, other, fmt.Errorf("(local) %w", err)
	}
	config, err := Config(remote.Flags)
	if err != nil {
		return local, other, fmt.Errorf("(remote) %w", err)
	}
	if other.Client, err = Client(config); err != nil {
		return local, other, fmt.Errorf("(remote) %w", err)
	}
	return local, other, nil
}

// RemoteChosen reports whether a flag chooses the other cluster.
func RemoteChosen(flags *pflag.FlagSet) (chosen bool) {
	flags.Visit(func(flag *pflag.Flag) {
		chosen = chosen || strings.HasPrefix(flag.Name, "remote-") && flag.Name != "remote-namespace"
	})
	return chosen
}
