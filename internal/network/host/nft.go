// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"fmt"

	"github.com/google/nftables"
	"github.com/mdlayher/netlink"

	"liqo.io/liqo/internal/network/host/filter"
	"liqo.io/liqo/internal/network/hoststate"
)

// nftBuffer bounds one transaction and its acknowledgements. It suffices for a few hundred peers.
const nftBuffer = 8 << 20

// nftSteps replaces our whole table in one transaction if anything in it differs. The kernel lists rules in another form than they were written
// in, so each rule carries a comment with the hash of its plan, which is compared instead.
func (h *Host) nftSteps(want hoststate.State) (steps, error) {
	conn, err := nftables.New(nftables.WithSockOptions(func(c *netlink.Conn) error {
		return errors.Join(c.SetWriteBuffer(nftBuffer), c.SetReadBuffer(nftBuffer))
	}))
	if err != nil {
		return steps{}, fmt.Errorf("open nftables: %w", err)
	}
	have, there, err := filter.Observed(conn)
	if err != nil {
		return steps{}, err // the filter that was in place is taken to be there still: other programs interrupt listings often
	}
	if have != h.filter || len(want.Chains) == 0 {
		h.filter = ""
	}
	wanted := filter.Wanted(want.Chains)
	what := "table ip " + hoststate.NFTable
	switch {
	case len(want.Chains) == 0 && !there:
		return steps{}, nil
	case len(want.Chains) == 0:
		return steps{prune: []step{{Change{verbDelete, what}, func() error {
			conn.DelTable(&nftables.Table{Name: hoststate.NFTable, Family: nftables.TableFamilyIPv4})
			return conn.Flush()
		}}}}, nil
	case have == wanted:
		h.filter = wanted
		return steps{}, nil
	}
	verb := verbReplace
	if !there {
		verb = verbAdd
	}
	return steps{make: []step{{Change{verb, what}, func() error {
		err := filter.Write(conn, want.Chains)
		if err == nil {
			h.filter = wanted
		}
		return err
	}}}}, nil
}
