// SPDX-License-Identifier: Apache-2.0

package invitation

import (
	"crypto/ecdh"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// Invitation is the way to a provider. It is secret: who has it reaches the provider's proxy, and nothing else.
type Invitation struct {
	// PrivateKey of this end of the tunnel, and PublicKey of the provider's gateway.
	PrivateKey []byte `json:"privateKey"`
	PublicKey  []byte `json:"publicKey"`
	// Endpoints are where the gateway is reached over UDP: HOST:PORT, the best one first.
	Endpoints []string `json:"endpoints"`
	// Address is that of this end, and Proxy that of the provider's proxy in the tunnel.
	Address netip.Addr     `json:"address"`
	Proxy   netip.AddrPort `json:"proxy"`
	// User and Pass name this end to the proxy.
	User string `json:"user"`
	Pass string `json:"pass"`
}

// SecretKey is the key of an invitation in the Secret with the token that it goes with.
const SecretKey = "invitation"

const (
	keySize = 32
	// maxText and maxEndpoints bound what users paste.
	maxText      = 8 << 10
	maxEndpoints = 16
	// prefix distinguishes an invitation from other texts, and states its version.
	prefix = "liqo1."
)

// NewKey returns a key of WireGuard.
func NewKey() (private, public []byte, err error) {
	key, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("make a key for the invitation: %w", err)
	}
	return key.Bytes(), key.PublicKey().Bytes(), nil
}

// String returns the text that is printed.
func (i Invitation) String() string {
	text, err := json.Marshal(i)
	if err != nil {
		return "" // all of its fields can be marshalled
	}
	return prefix + base64.RawURLEncoding.EncodeToString(text)
}

// Parse reads the text of an invitation. Its errors do not repeat the text, which is secret.
func Parse(text string) (Invitation, error) {
	var i Invitation
	encoded, ok := strings.CutPrefix(strings.TrimSpace(text), prefix)
	if !ok || len(encoded) > maxText {
		return i, errors.New("this is not an invitation; copy all of what `generate peer-command --in-band` printed")
	}
	raw, err := base64.RawURLEncoding.DecodeString(encoded)
	if err == nil {
		err = json.Unmarshal(raw, &i)
	}
	if err != nil {
		return Invitation{}, errors.New("the invitation is not complete; copy all of what `generate peer-command --in-band` printed")
	}
	if err := i.check(); err != nil {
		return Invitation{}, fmt.Errorf("the invitation is not usable: %w", err)
	}
	return i, nil
}

func (i Invitation) check() error {
	switch {
	case len(i.PrivateKey) != keySize || len(i.PublicKey) != keySize:
		return fmt.Errorf("its keys have not %d bytes", keySize)
	case len(i.Endpoints) == 0 || len(i.Endpoints) > maxEndpoints:
		return fmt.Errorf("it has %d endpoints, want 1 to %d", len(i.Endpoints), maxEndpoints)
	case !i.Address.Is4() || !i.Proxy.Addr().Is4() || i.Proxy.Port() == 0 || i.Address == i.Proxy.Addr():
		return errors.New("its addresses are not two of IPv4, with a port for the proxy")
	case i.User == "" || i.Pass == "" || strings.ContainsAny(i.User, ":@/ ") || strings.ContainsAny(i.Pass, ":@/ "):
		return errors.New("it has no pass for the proxy")
	}
	for _, endpoint := range i.Endpoints {
		colon := strings.LastIndexByte(endpoint, ':')
		if port, err := strconv.ParseUint(endpoint[colon+1:], 10, 16); colon < 1 || err != nil || port == 0 {
			return errors.New("an endpoint is not HOST:PORT")
		}
	}
	return nil
}

// ProxyURL is the URL of the proxy. No other process can follow it: its host does not exist, and Dial ignores it.
func (i Invitation) ProxyURL() string {
	return "http://" + i.User + ":" + i.Pass + "@" + host + ":" + strconv.Itoa(int(i.Proxy.Port()))
}

// host is the name of the proxy in URLs. Names below invalid never resolve (RFC 6761).
const host = "invitation.invalid"
