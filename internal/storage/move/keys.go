// SPDX-License-Identifier: Apache-2.0

package move

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"fmt"

	"golang.org/x/crypto/ssh"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/apis/labels"
	v1alpha1 "liqo.io/liqo/apis/storage/v1alpha1"
	"liqo.io/liqo/internal/storage/move/plan"
)

// pair is a new key: its private part, and its public part as one line.
func pair() (private, public []byte, err error) {
	publicKey, privateKey, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	block, err := ssh.MarshalPrivateKey(privateKey, "")
	if err != nil {
		return nil, nil, err
	}
	line, err := ssh.NewPublicKey(publicKey)
	if err != nil {
		return nil, nil, err
	}
	return pem.EncodeToMemory(block), ssh.MarshalAuthorizedKey(line), nil
}

// keys makes the two Secrets of a move anew: after an interruption, one alone would belong to keys that are lost.
func (c *controller) keys(ctx context.Context, move *v1alpha1.VolumeMove) error {
	server, serverPublic, err := pair()
	if err != nil {
		return fmt.Errorf("make the key of the server: %w", err)
	}
	clientKey, clientPublic, err := pair()
	if err != nil {
		return fmt.Errorf("make the key of the client: %w", err)
	}
	known := append([]byte("move "), serverPublic...)
	for _, secret := range plan.Secrets(move, server, clientKey, clientPublic, known) {
		if err := client.IgnoreNotFound(c.client.Delete(ctx, secret.DeepCopy())); err != nil {
			return err
		}
		if err := c.client.Create(ctx, secret, client.FieldOwner(labels.OwnerMove)); err != nil {
			return err
		}
	}
	return nil
}
