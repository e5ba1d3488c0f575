// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"github.com/spf13/cobra"

	"liqo.io/liqo/playground/internal/lifecycle"
	"liqo.io/liqo/playground/internal/proxy"
)

func (a *app) proxy() *cobra.Command {
	c := &cobra.Command{
		Use: "proxy", Short: "Put a real proxy in front of a cluster: nginx, HAProxy or Tinyproxy",
		Long: `A proxy is one more machine on the node network of a cluster, with an address of its own.
Its program comes from the Debian package of this machine's release, which is downloaded
once and not installed.`,
	}
	c.AddCommand(a.proxyAdd(), a.proxyRemove())
	return c
}

func (a *app) proxyAdd() *cobra.Command {
	var want proxy.Proxy
	var kind string
	c := &cobra.Command{
		Use: "add CLUSTER", Short: "Start a proxy in front of a cluster",
		Long: `add starts a proxy and prints its URL. nginx and haproxy are reverse proxies: they forward
requests below a path, and WebSockets, to a port of the cluster's nodes, and answer 404
to others. connect is a forward proxy for clients that use HTTP CONNECT.`,
		Example: `  playground proxy add milan --listen 443 --tls --path /liqo --to 31000
  playground proxy add milan --kind haproxy --listen 8443 --tls --to 6443 --to-tls
  playground proxy add rome --kind connect --listen 3128 --user liqo --password secret`,
		Args: cobra.ExactArgs(1), ValidArgsFunction: completeClusters(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			want.Cluster, want.Kind, want.Number = args[0], proxy.Kind(kind), 1
			if want.Path == "" && want.Kind != proxy.Connect {
				want.Path = "/"
			}
			// Check the flags before anything is locked or changed.
			if err := want.Validate(); err != nil {
				return err
			}
			p, err := a.playground()
			if err != nil {
				return err
			}
			added, cluster, err := p.AddProxy(cmd.Context(), want)
			if err != nil {
				return err
			}
			a.printf("%s is up at %s\n", added.Name(), added.URL(cluster))
			if added.TLS {
				a.printf("its authority is %s\n", lifecycle.ProxyAuthority(added, cluster))
			}
			return nil
		},
	}
	c.Flags().StringVar(&kind, "kind", string(proxy.Nginx), "nginx, haproxy or connect")
	c.Flags().IntVar(&want.Listen, "listen", 0, "port of the proxy")
	c.Flags().IntVar(&want.To, "to", 0, "port of the cluster's nodes, for example a NodePort")
	c.Flags().BoolVar(&want.ToTLS, "to-tls", false, "speak TLS to the nodes, without a check of their certificate")
	c.Flags().StringVar(&want.Path, "path", "", "forward only requests below this path (default: all)")
	c.Flags().BoolVar(&want.TLS, "tls", false, "serve HTTPS, with a certificate of an authority of its own")
	c.Flags().StringVar(&want.User, "user", "", "user that a forward proxy asks for")
	c.Flags().StringVar(&want.Password, "password", "", "password that a forward proxy asks for")
	return c
}

func (a *app) proxyRemove() *cobra.Command {
	return &cobra.Command{
		Use: "remove PROXY", Short: "Remove a proxy, by the name that status shows",
		Example: "  playground proxy remove milan-proxy1",
		Args:    cobra.ExactArgs(1),
		RunE:    func(_ *cobra.Command, args []string) error { return a.running().RemoveProxy(args[0]) },
	}
}
