// SPDX-License-Identifier: Apache-2.0

package network

import (
	"errors"
	"fmt"
	"io/fs"

	"liqo.io/liqo/playground/internal/topology"
)

// AddExtra makes a namespace on the node network of a cluster for a machine that is no node. It replaces one of that name.
func AddExtra(c topology.Cluster, e topology.Endpoint) error {
	if err := RemoveExtra(e); err != nil {
		return err
	}
	router, inside, done, err := openRouter()
	if err != nil {
		return err
	}
	defer done()
	if err := addEndpoint(router, inside, c, e); err != nil {
		return fmt.Errorf("connect %s: %w", e.Name, err)
	}
	return nil
}

// RemoveExtra undoes AddExtra; what is missing already is no error.
func RemoveExtra(e topology.Endpoint) error {
	if err := remove(e.NetNS); err != nil {
		return err
	}
	_, inside, done, err := openRouter()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer done()
	return deleteLink(inside, e.Port)
}
