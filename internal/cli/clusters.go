// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	offloadingv1alpha1 "liqo.io/liqo/apis/offloading/v1alpha1"
	sharingv1alpha1 "liqo.io/liqo/apis/sharing/v1alpha1"
	"liqo.io/liqo/internal/action"
)

// defaultNamespace is where Liqo is installed, unless said otherwise.
const defaultNamespace = "liqo"

// Factory is what all commands share: the flags that choose a cluster, and the way to talk to the user.
type Factory struct {
	streams genericiooptions.IOStreams
	flags   *genericclioptions.ConfigFlags
	name    string
	verbose bool
	printer *printer
}

func (f *Factory) register(root *cobra.Command) {
	namespace := defaultNamespace
	f.flags.Namespace = &namespace
	flags := root.PersistentFlags()
	f.flags.AddFlags(flags)
	for _, name := range []string{
		"as", "as-group", "as-uid", "as-user-extra", "cache-dir", "certificate-authority", "client-certificate", "client-key", "disable-compression",
		"insecure-skip-tls-verify", "password", "request-timeout", "server", "tls-server-name", "token", "username",
	} {
		if flag := flags.Lookup(name); flag != nil {
			flag.Hidden = true
		}
	}
	flag := flags.Lookup("namespace")
	flag.DefValue, flag.Usage = defaultNamespace, "Namespace in which Liqo is installed"
	flags.BoolVarP(&f.verbose, "verbose", "v", false, "Say more, logs of the Kubernetes client included")
}

// namespace in which Liqo is installed.
func (f *Factory) namespace() string {
	if f.flags.Namespace == nil || *f.flags.Namespace == "" {
		return defaultNamespace
	}
	return *f.flags.Namespace
}

// config reads the kubeconfig. It contacts nobody.
func (f *Factory) config() (*rest.Config, error) {
	config, err := f.flags.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w; see --kubeconfig and --context, and `kubectl config get-contexts`", err)
	}
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = 100, 200
	return config, nil
}

// scheme of everything the commands read and write.
func scheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, discoveryv1alpha1.AddToScheme, sharingv1alpha1.AddToScheme, offloadingv1alpha1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	return scheme, nil
}

// client of the chosen cluster. It has not been contacted yet.
func (f *Factory) client() (client.WithWatch, error) {
	config, err := f.config()
	if err != nil {
		return nil, err
	}
	scheme, err := scheme()
	if err != nil {
		return nil, err
	}
	c, err := client.NewWithWatch(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("cluster at %s: %w", config.Host, err)
	}
	return c, nil
}

// completePeers offers the names of foreign clusters that were not named yet.
func (f *Factory) completePeers(most int) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
		if most > 0 && len(args) >= most {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		c, err := f.client()
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		names, err := action.ForeignClusterNames(cmd.Context(), c)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		var fitting []string
		for _, name := range names {
			if strings.HasPrefix(name, prefix) && !slices.Contains(args, name) {
				fitting = append(fitting, name)
			}
		}
		return fitting, cobra.ShellCompDirectiveNoFileComp
	}
}

// timeoutFlag is the documented flag of commands that wait.
func timeoutFlag(cmd *cobra.Command, value *time.Duration, standard time.Duration) {
	cmd.PersistentFlags().DurationVar(value, "timeout", standard, "How long it may take")
}

// exactly wants n arguments.
func exactly(n int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != n {
			return fmt.Errorf("want %s, have %d arguments; see `%s --help`", what, len(args), cmd.CommandPath())
		}
		return nil
	}
}

// later is a documented command that this version does not have yet.
func (f *Factory) later(use, short, why string) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short + " (not yet)", DisableFlagParsing: true,
		RunE: func(*cobra.Command, []string) error { return errors.New(why) },
	}
}
