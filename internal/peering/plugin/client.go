// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

const (
	// DefaultTimeout is the deadline of a call.
	DefaultTimeout = 2 * time.Second
	// maxRetry bounds the time between two attempts to connect, and so the time until a restarted plugin is connected.
	maxRetry = 5 * time.Second
	minRetry = 200 * time.Millisecond
	// keepaliveEvery detects a plugin that vanished without closing its connection. Servers allow no less than five minutes
	// by default.
	keepaliveEvery = 5 * time.Minute
	// maxResources bounds an answer; a node has about ten resources.
	maxResources = 256
)

// ErrAnswer is wrapped by the error of an invalid answer, which a retry does not change.
var ErrAnswer = errors.New("unusable answer")

// Client calls one plugin. It is safe for concurrent use.
type Client struct {
	connection *grpc.ClientConn
	reader     ResourceReaderClient
	address    string
	timeout    time.Duration
	proof      *proven // may be nil
}

// New returns a client of the plugin at host:port. It connects when first used, and again whenever needed. certificates is a folder with the authority
// that signs the plugin's certificate, and with what this cluster shows if the plugin asks for it. If it is empty, the connection is not encrypted, as
// documented: the plugin must run in the same cluster.
func New(address, certificates string, timeout time.Duration) (*Client, error) {
	if timeout <= 0 {
		timeout = DefaultTimeout
	}
	var proof *proven
	transport := insecure.NewCredentials()
	if certificates != "" {
		var err error
		if proof, err = newProven(certificates); err != nil {
			return nil, err
		}
		transport = proof
	}
	retry := backoff.DefaultConfig
	retry.BaseDelay, retry.MaxDelay = minRetry, maxRetry
	connection, err := grpc.NewClient(address,
		grpc.WithTransportCredentials(transport),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: retry, MinConnectTimeout: timeout}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: keepaliveEvery, Timeout: timeout}),
		grpc.WithNoProxy(), // in the same cluster
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(1<<20)),
	)
	if err != nil {
		return nil, fmt.Errorf("resource plugin %q: %w", address, err)
	}
	return &Client{connection: connection, reader: NewResourceReaderClient(connection), address: address, timeout: timeout, proof: proof}, nil
}

// Address is the plugin's host:port.
func (c *Client) Address() string { return c.address }

// Close ends the connection and all calls.
func (c *Client) Close() error { return c.connection.Close() }

// Read returns what a peer may use.
func (c *Client) Read(ctx context.Context, clusterID string) (corev1.ResourceList, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	answer, err := c.reader.ReadResources(ctx, &ClusterIdentity{ClusterID: clusterID})
	if err != nil {
		if c.proof != nil && c.proof.failed.Load() {
			err = fmt.Errorf("%w: %w", ErrUnproven, err)
		}
		return nil, fmt.Errorf("call resource plugin %s for cluster %s: %w", c.address, clusterID, err)
	}
	list, err := parse(answer.GetResources())
	if err != nil {
		return nil, fmt.Errorf("resource plugin %s for cluster %s: %w", c.address, clusterID, err)
	}
	return list, nil
}

// parse accepts only what can become the capacity of a node.
func parse(answer map[string]string) (corev1.ResourceList, error) {
	if len(answer) > maxResources {
		return nil, fmt.Errorf("%w: %d resources, more than %d", ErrAnswer, len(answer), maxResources)
	}
	list := make(corev1.ResourceList, len(answer))
	for _, name := range slices.Sorted(maps.Keys(answer)) { // so that the same answer is always the same error
		text := answer[name]
		if problems := validation.IsQualifiedName(name); len(problems) > 0 {
			return nil, fmt.Errorf("%w: %.80q is not the name of a resource: %s", ErrAnswer, name, problems[0])
		}
		quantity, err := resource.ParseQuantity(text)
		if err != nil {
			return nil, fmt.Errorf("%w: %s is %.80q: %w", ErrAnswer, name, text, err)
		}
		if quantity.Sign() < 0 {
			return nil, fmt.Errorf("%w: %s is %.80q, which is negative", ErrAnswer, name, text)
		}
		list[corev1.ResourceName(name)] = quantity
	}
	return list, nil
}

// Remove notifies the plugin that a peer is gone.
func (c *Client) Remove(ctx context.Context, clusterID string) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	if _, err := c.reader.RemoveCluster(ctx, &ClusterIdentity{ClusterID: clusterID}); err != nil {
		return fmt.Errorf("notify resource plugin %s that cluster %s is gone: %w", c.address, clusterID, err)
	}
	return nil
}

// Watch calls changed with the ID of each peer whose answer changed, until the context ends. After each connection, the
// first included, it calls changed with an empty ID, because changes before it were not received. changed must not block.
func (c *Client) Watch(ctx context.Context, changed func(clusterID string)) {
	logger := log.FromContext(ctx).WithValues("plugin", c.address)
	wait := minRetry
	for ctx.Err() == nil {
		received, err := c.receive(ctx, changed)
		if ctx.Err() != nil {
			return
		}
		if status.Code(err) == codes.Unimplemented {
			// Such a plugin is called once per refresh interval.
			logger.Info("resource plugin does not report changes")
			wait = maxRetry
		} else {
			logger.V(1).Info("resource plugin not connected", "reason", err.Error())
		}
		if received {
			wait = minRetry
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
		case <-timer.C:
		}
		wait = min(2*wait, maxRetry)
	}
}

// receive reads one stream to its end, and reports whether it received anything.
func (c *Client) receive(ctx context.Context, changed func(string)) (received bool, _ error) {
	// An idle stream is normal, so there is no deadline here. WaitForReady waits for the connection, whose attempts have
	// their own deadlines.
	stream, err := c.reader.Subscribe(ctx, &Empty{}, grpc.WaitForReady(true))
	if err != nil {
		return false, fmt.Errorf("subscribe: %w", err)
	}
	changed("")
	for {
		identity, err := stream.Recv()
		if err != nil {
			return received, fmt.Errorf("receive: %w", err)
		}
		received = true
		if id := identity.GetClusterID(); id != "" {
			changed(id)
		}
	}
}
