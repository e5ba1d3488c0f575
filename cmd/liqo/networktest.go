// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"liqo.io/liqo/cmd/liqo/role"
	"liqo.io/liqo/internal/network/matrix"
)

// networkTestServer is one end of `liqoctl test network`, which runs it while the test lasts. It needs no API server.
func networkTestServer() role.Role {
	return role.Role{Name: "network-test-server", Short: "Serve one end of `liqoctl test network`", New: func() *cobra.Command {
		var o networkTestOptions
		cmd := &cobra.Command{
			Args: cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				if err := o.Validate(); err != nil {
					return err
				}
				return o.server.Serve(cmd.Context(), o.address)
			},
		}
		o.Register(cmd.Flags())
		return cmd
	}}
}

type networkTestOptions struct {
	server  matrix.Server
	address string
}

// Register adds the flags. The key comes from the environment, because other processes can read arguments.
func (o *networkTestOptions) Register(flags *pflag.FlagSet) {
	flags.StringVar(&o.address, "address", fmt.Sprintf(":%d", matrix.Port), "address to listen at, TCP and UDP")
	flags.StringVar(&o.server.Name, "name", os.Getenv("POD_NAME"), "name that the server returns to its clients")
	o.server.Key = os.Getenv("NETWORK_TEST_KEY")
}

func (o *networkTestOptions) Validate() error {
	if o.server.Name == "" || o.server.Key == "" {
		return errors.New("--name, or the variable POD_NAME, and the variable NETWORK_TEST_KEY must be set; `liqoctl test network` sets them")
	}
	return nil
}
