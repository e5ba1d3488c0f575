// SPDX-License-Identifier: Apache-2.0

// Package signature signs the network that a cluster publishes to a peer, and the peer's answer, with the keys that identify the two clusters. So what
// is believed does not depend on who stored or carried the objects: an API server, or a peer that may write into the tenant namespace.
//
// It must not know where objects and keys come from. The proof is signature_test.go: no two configurations have the same encoding, and every field
// is signed.
package signature

import (
	"cmp"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	"liqo.io/liqo/internal/kube/clusterkey"
)

const (
	configPurpose = "liqo.io/net/config/v1"
	answerPurpose = "liqo.io/net/answer/v1"
	// rowsPurpose is that of an answer about further address families, which no earlier version asks for.
	rowsPurpose = "liqo.io/net/answer/v2"
)

var encoding = base64.StdEncoding.Strict()

// Why a signature does not count. The messages name the check that failed.
var (
	// ErrUnpinned: the key of the signer is not known.
	ErrUnpinned = errors.New("the key of the peer is not pinned yet")
	// ErrUnsigned: there is no signature.
	ErrUnsigned = errors.New("it has no signature")
	// ErrOtherKey: no signature is with the pinned key.
	ErrOtherKey = errors.New("it is signed with another key")
	// ErrInvalid: the signature with the pinned key is not one of this content.
	ErrInvalid = errors.New("its signature does not match its content")
)

// Config returns the signatures of a sender over the network that it publishes, the ones in it excepted.
func Config(keys clusterkey.Keys, sender string, spec *netv1alpha1.NetworkConfigSpec) []netv1alpha1.Signature {
	return sign(keys, encodeConfig(sender, spec))
}

// CheckConfig returns an error unless the cluster sender, whose key has the fingerprint pin, signed the network that it publishes.
func CheckConfig(pin, sender string, spec *netv1alpha1.NetworkConfigSpec) error {
	if err := check(pin, spec.Signatures, encodeConfig(sender, spec)); err != nil {
		return err
	}
	if !spec.Covered() {
		return ErrInvalid
	}
	return nil
}

// Exchange is a published network and the answer to it.
type Exchange struct {
	// Asker published its networks, and Answerer decided as which networks it sees them: cluster IDs.
	Asker, Answerer string
	Config          *netv1alpha1.NetworkConfigSpec
	Answer          *netv1alpha1.NetworkConfigStatus
}

// Answer returns the signatures of the answerer over its answer.
func Answer(keys clusterkey.Keys, e Exchange) []netv1alpha1.Signature {
	return sign(keys, e.encode())
}

// CheckAnswer returns an error unless the answerer, whose key has the fingerprint pin, signed the answer.
func CheckAnswer(pin string, e Exchange) error {
	return check(pin, e.Answer.Signatures, e.encode())
}

// sign signs with the previous key as well, if there is one: until all peers know the current key, some believe only that.
func sign(keys clusterkey.Keys, message []byte) (all []netv1alpha1.Signature) {
	for _, key := range []ed25519.PrivateKey{keys.Current, keys.Previous} {
		if key != nil {
			all = append(all, netv1alpha1.Signature{
				PublicKey: encoding.EncodeToString(clusterkey.Public(key)), Value: encoding.EncodeToString(ed25519.Sign(key, message)),
			})
		}
	}
	return all
}

func check(pin string, signatures []netv1alpha1.Signature, message []byte) error {
	switch {
	case pin == "":
		return ErrUnpinned
	case len(signatures) == 0:
		return ErrUnsigned
	}
	seen := "no key"
	for _, one := range signatures {
		key, err := encoding.DecodeString(one.PublicKey)
		if err != nil || len(key) != ed25519.PublicKeySize {
			continue
		}
		fingerprint := clusterkey.Fingerprint(key)
		if fingerprint != pin {
			seen = fingerprint
			continue
		}
		if value, err := encoding.DecodeString(one.Value); err != nil || !ed25519.Verify(key, message, value) {
			return ErrInvalid
		}
		return nil
	}
	return fmt.Errorf("%w, with the fingerprint %s; pinned is %s", ErrOtherKey, seen, pin)
}

// list is fields to sign. [clusterkey.Message] keeps fields apart; the length before each sequence keeps sequences apart.
type list [][]byte

func (l *list) text(all ...string) {
	for _, one := range all {
		*l = append(*l, []byte(one))
	}
}

func (l *list) number(n int64) { l.text(strconv.FormatInt(n, 10)) }

// encodeConfig returns the bytes that the sender signs. Rows of networks that state more than the fields are covered by their digest in backend_config, so that
// readers of an earlier version, which do not have the rows, verify the same bytes. The order of lanes and settings has no meaning: API servers may change it.
func encodeConfig(sender string, spec *netv1alpha1.NetworkConfigSpec) []byte {
	var l list
	l.text(sender, spec.Cluster.ClusterID, spec.Cluster.ClusterName)
	l.number(spec.Version)
	l.text(string(spec.PodCIDR), string(spec.ExternalCIDR))
	l.number(int64(len(spec.AdditionalPodCIDRs)))
	for _, network := range spec.AdditionalPodCIDRs {
		l.text(string(network))
	}
	l.text(spec.EndpointIP, spec.BackendType)
	l.number(int64(len(spec.BackendConfig)))
	for _, name := range slices.Sorted(maps.Keys(spec.BackendConfig)) {
		l.text(name, spec.BackendConfig[name])
	}
	l.number(int64(len(spec.Lanes)))
	lanes := slices.SortedStableFunc(slices.Values(spec.Lanes), byNumber)
	for i := range lanes {
		l.number(int64(lanes[i].Number))
		l.text(lanes[i].PublicKey)
		l.number(int64(len(lanes[i].Carriers)))
		for j := range lanes[i].Carriers {
			carrier := &lanes[i].Carriers[j]
			l.text(carrier.Type)
			l.number(int64(carrier.Port))
			l.number(int64(len(carrier.Addresses)))
			l.text(carrier.Addresses...)
			if carrier.Path != "" { // it starts with a slash, so it is no type of another carrier
				l.text(carrier.Path)
			}
		}
	}
	return clusterkey.Message(configPurpose, l...)
}

func byNumber(a, b netv1alpha1.Lane) int { return cmp.Compare(a.Number, b.Number) }

// encode returns the bytes that the answerer signs. They name the networks, not the version of the configuration: the answer to the same networks
// stays valid while keys and addresses of gateways change.
func (e Exchange) encode() []byte {
	var l list
	l.text(e.Answerer, e.Asker, string(e.Config.PodCIDR), string(e.Config.ExternalCIDR), e.Answer.PodCIDRNAT, e.Answer.ExternalCIDRNAT)
	if !e.Answer.StatesMore() {
		return clusterkey.Message(answerPurpose, l...)
	}
	l.number(int64(len(e.Config.Networks)))
	for _, row := range e.Config.Networks {
		l.text(string(row.PodCIDR), string(row.ExternalCIDR))
	}
	for _, row := range e.Answer.Networks {
		l.text(row.PodCIDRNAT, row.ExternalCIDRNAT)
	}
	return clusterkey.Message(rowsPurpose, l...)
}
