// SPDX-License-Identifier: Apache-2.0

package filter

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/userdata"

	"liqo.io/liqo/internal/network/hoststate"
)

var hooks = map[hoststate.Hook]*nftables.ChainHook{
	hoststate.Prerouting:  nftables.ChainHookPrerouting,
	hoststate.Input:       nftables.ChainHookInput,
	hoststate.Forward:     nftables.ChainHookForward,
	hoststate.Output:      nftables.ChainHookOutput,
	hoststate.Postrouting: nftables.ChainHookPostrouting,
}

// Write runs the transaction. Adding the table first makes its deletion succeed even if it does not exist.
func Write(conn *nftables.Conn, chains []hoststate.Chain) error {
	table := &nftables.Table{Name: hoststate.NFTable, Family: nftables.TableFamilyIPv4}
	conn.AddTable(table)
	conn.DelTable(table)
	conn.AddTable(table)
	for _, one := range chains {
		chain := newChain(one)
		if chain.Hooknum == nil {
			return fmt.Errorf("chain %s: unknown hook %q", one.Name, one.Hook)
		}
		chain.Table = table
		conn.AddChain(chain)
		for i, rule := range one.Rules {
			w := &RuleWriter{Conn: conn, Table: table}
			if err := w.Rule(rule); err != nil {
				return fmt.Errorf("chain %s, rule %d: %w", one.Name, i, err)
			}
			conn.AddRule(&nftables.Rule{
				Table: table, Chain: chain, Exprs: w.Exprs, UserData: userdata.AppendString(nil, userdata.TypeComment, ruleComment(rule)),
			})
		}
	}
	return conn.Flush()
}

// newChain converts a chain to the library's type; without a hook if the hook is unknown.
func newChain(c hoststate.Chain) *nftables.Chain {
	policy := nftables.ChainPolicyAccept
	kind := nftables.ChainTypeFilter
	if c.NAT {
		kind = nftables.ChainTypeNAT
	}
	return &nftables.Chain{
		Name: c.Name, Hooknum: hooks[c.Hook], Priority: nftables.ChainPriorityRef(nftables.ChainPriority(c.Priority)), Type: kind, Policy: &policy,
	}
}

// ruleComment returns the comment of a rule: its verb and the hash of its plan.
func ruleComment(rule hoststate.PacketRule) string {
	// An empty set that is not nil matches all, but prints like nil.
	sum := sha256.Sum256(fmt.Appendf(nil, "%d %t %t %+v", encoding, rule.FromNot == nil, rule.ToNot == nil, rule))
	return fmt.Sprintf("%s %x", rule.Verb, sum[:8])
}

// Wanted describes chains in the form of observedTable.
func Wanted(chains []hoststate.Chain) string {
	var text strings.Builder
	for _, one := range chains {
		describeChain(&text, newChain(one))
		for _, rule := range one.Rules {
			fmt.Fprintf(&text, "  %s\n", ruleComment(rule))
		}
	}
	return text.String()
}

func describeChain(text *strings.Builder, c *nftables.Chain) {
	if c.Hooknum == nil || c.Priority == nil || c.Policy == nil {
		fmt.Fprintf(text, "%s without hook\n", c.Name)
		return
	}
	fmt.Fprintf(text, "%s %s hook %d priority %d policy %d\n", c.Name, c.Type, *c.Hooknum, *c.Priority, *c.Policy)
}

// Observed describes our table: its chains in the order of their creation, and the comment of each rule.
func Observed(conn *nftables.Conn) (description string, there bool, err error) {
	tables, err := conn.ListTablesOfFamily(nftables.TableFamilyIPv4)
	if err != nil {
		return "", false, fmt.Errorf("list nftables tables: %w", err)
	}
	var table *nftables.Table
	for _, one := range tables {
		if one.Name == hoststate.NFTable {
			table = one
		}
	}
	if table == nil {
		return "", false, nil
	}
	var text strings.Builder
	if table.Flags != 0 {
		fmt.Fprintf(&text, "flags %d\n", table.Flags) // such as dormant
	}
	chains, err := conn.ListChainsOfTableFamily(nftables.TableFamilyIPv4)
	if err != nil {
		return "", true, fmt.Errorf("list chains: %w", err)
	}
	for _, one := range chains {
		if one.Table.Name != hoststate.NFTable {
			continue
		}
		describeChain(&text, one)
		rules, err := conn.GetRules(table, one)
		if errors.Is(err, os.ErrNotExist) {
			continue // deleted meanwhile
		}
		if err != nil {
			return "", true, fmt.Errorf("list rules of chain %s: %w", one.Name, err)
		}
		for _, rule := range rules {
			comment, _ := userdata.GetString(rule.UserData, userdata.TypeComment)
			fmt.Fprintf(&text, "  %s\n", comment)
		}
	}
	return text.String(), true, nil
}

// encoding is part of each rule's comment. Increment it when nft_expr.go encodes the same rule in other expressions, so that an upgrade
// rewrites the table.
const encoding = 2
