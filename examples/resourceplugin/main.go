// SPDX-License-Identifier: Apache-2.0

// Command resourceplugin is a minimal resource plugin: it grants every peer the same resources, which it reads from a
// file whenever the file changes. Start it with
//
//	resourceplugin --listen 127.0.0.1:6001 --file grant.json
//
// where grant.json is an object such as {"cpu": "4", "memory": "8Gi", "pods": "50"}, and give its address to the
// controller manager (--resource-plugin-address, Helm value controllerManager.config.resourcePluginAddress). A real
// plugin would use the cluster ID of the request.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"maps"
	"net"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"

	"liqo.io/liqo/internal/peering/plugin"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:6001", "address to listen on")
	file := flag.String("file", "grant.json", "file with a JSON object from resource names to quantities, which is read again when it changes")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *listen, *file); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, address, file string) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	granting := &server{peers: map[string]bool{}, changed: make(chan struct{})}
	if err := granting.load(file); err != nil {
		return err
	}
	go granting.follow(ctx, file)

	server := grpc.NewServer()
	plugin.RegisterResourceReaderServer(server, granting)
	go func() {
		<-ctx.Done()
		server.Stop()
	}()
	fmt.Println("listening on", listener.Addr())
	return server.Serve(listener)
}

// server grants every peer the same resources.
type server struct {
	plugin.UnimplementedResourceReaderServer

	mu      sync.Mutex
	grant   map[string]string
	peers   map[string]bool
	changed chan struct{} // closed and replaced when the grant changes
}

func (s *server) ReadResources(_ context.Context, peer *plugin.ClusterIdentity) (*plugin.ResourceList, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.peers[peer.GetClusterID()] = true
	return &plugin.ResourceList{Resources: maps.Clone(s.grant)}, nil
}

func (s *server) Subscribe(_ *plugin.Empty, stream grpc.ServerStreamingServer[plugin.ClusterIdentity]) error {
	s.mu.Lock()
	changed := s.changed
	s.mu.Unlock()
	for {
		select {
		case <-stream.Context().Done():
			return nil
		case <-changed:
		}
		// Take the next channel before the peers are notified, so that no change is missed in between.
		s.mu.Lock()
		changed = s.changed
		peers := maps.Clone(s.peers)
		s.mu.Unlock()
		for id := range peers {
			if err := stream.Send(&plugin.ClusterIdentity{ClusterID: id}); err != nil {
				return err
			}
		}
	}
}

func (s *server) RemoveCluster(_ context.Context, peer *plugin.ClusterIdentity) (*plugin.Empty, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.peers, peer.GetClusterID())
	fmt.Println("removed", peer.GetClusterID())
	return &plugin.Empty{}, nil
}

// follow reads the file again when it changes. An invalid file does not change the grant.
func (s *server) follow(ctx context.Context, file string) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	var read time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		info, err := os.Stat(file)
		if err != nil || info.ModTime().Equal(read) {
			continue
		}
		read = info.ModTime()
		if err := s.load(file); err != nil {
			log.Print(err)
		}
	}
}

func (s *server) load(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var grant map[string]string
	if err := json.Unmarshal(text, &grant); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !maps.Equal(s.grant, grant) {
		s.grant = grant
		close(s.changed)
		s.changed = make(chan struct{})
	}
	return nil
}
