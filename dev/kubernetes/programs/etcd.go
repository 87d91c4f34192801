package main

import (
	"fmt"
	"net/url"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/embed"
)

// etcdCommand runs a one-member etcd. It does not sync to disk by default: the harness's clusters do not outlive a
// crash of the machine, and two cores share one disk with three nodes.
func etcdCommand() *cobra.Command {
	config := embed.NewConfig()
	config.Name = "default"
	config.LogLevel = "warn"
	config.UnsafeNoFsync = true
	var clients, peers string
	command := &cobra.Command{
		Use:          "etcd",
		SilenceUsage: true,
		RunE: func(*cobra.Command, []string) error {
			client, err := url.Parse(clients)
			if err != nil {
				return fmt.Errorf("--listen-client-url: %w", err)
			}
			peer, err := url.Parse(peers)
			if err != nil {
				return fmt.Errorf("--listen-peer-url: %w", err)
			}
			config.ListenClientUrls, config.AdvertiseClientUrls = []url.URL{*client}, []url.URL{*client}
			config.ListenPeerUrls, config.AdvertisePeerUrls = []url.URL{*peer}, []url.URL{*peer}
			config.InitialCluster = config.InitialClusterFromName(config.Name)
			server, err := embed.StartEtcd(config)
			if err != nil {
				return err
			}
			asked := make(chan os.Signal, 1)
			signal.Notify(asked, syscall.SIGTERM, syscall.SIGINT)
			select {
			case err := <-server.Err():
				return err
			case <-asked:
				server.Close()
				return nil
			}
		},
	}
	command.Flags().StringVar(&config.Dir, "data-dir", "default.etcd", "where the data is kept")
	command.Flags().StringVar(&clients, "listen-client-url", "http://127.0.0.1:2379", "where clients are served")
	command.Flags().StringVar(&peers, "listen-peer-url", "http://127.0.0.1:2380", "where other members would be served")
	return command
}
