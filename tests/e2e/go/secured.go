package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	pulsarlog "github.com/apache/pulsar-client-go/pulsar/log"
)

const (
	operationTime = 10 * time.Second
	content       = "hello"
)

// Does one thing for each line of its input, "what, topic, token" with tabs between, and prints a
// JSON line with what went wrong. An empty token: the client proves nothing.
func secured(url string, authorityFile string) {
	held := map[string]pulsar.Producer{}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		parts := strings.Split(lines.Text(), "\t")
		line := map[string]string{"error": ""}
		if err := securely(url, authorityFile, held, parts[0], parts[1], parts[2]); err != nil {
			line["error"] = err.Error()
		}
		print(line)
	}
}

func securely(
	url string, authorityFile string, held map[string]pulsar.Producer, what, topic, token string,
) error {
	if what == "send" {
		return sendTo(held[topic])
	}
	client, err := securedClient(url, authorityFile, token)
	if err != nil {
		return err
	}
	switch what {
	case "produce":
		defer client.Close()
		_, err = sendFirst(client, topic)
	case "consume":
		defer client.Close()
		err = consumeOne(client, topic)
	case "hold":
		held[topic], err = sendFirst(client, topic)
	default:
		err = fmt.Errorf("what is %q?", what)
	}
	return err
}

func securedClient(url string, authorityFile string, token string) (pulsar.Client, error) {
	silent := slog.New(slog.NewTextHandler(io.Discard, nil))
	options := pulsar.ClientOptions{
		URL:                   url,
		TLSTrustCertsFilePath: authorityFile,
		TLSValidateHostname:   true,
		OperationTimeout:      operationTime,
		ConnectionTimeout:     operationTime,
		Logger:                pulsarlog.NewLoggerWithSlog(silent),
	}
	if token != "" {
		options.Authentication = pulsar.NewAuthenticationToken(token)
	}
	return pulsar.NewClient(options)
}

func sendFirst(client pulsar.Client, topic string) (pulsar.Producer, error) {
	producer, err := client.CreateProducer(
		pulsar.ProducerOptions{Topic: topic, SendTimeout: operationTime})
	if err != nil {
		return nil, err
	}
	return producer, sendTo(producer)
}

func sendTo(producer pulsar.Producer) error {
	_, err := producer.Send(
		context.Background(), &pulsar.ProducerMessage{Payload: []byte(content)})
	return err
}

func consumeOne(client pulsar.Client, topic string) error {
	consumer, err := subscribe(client, pulsar.ConsumerOptions{Topic: topic})
	if err != nil {
		return err
	}
	defer consumer.Close()
	found, err := receive(consumer, 1)
	if err != nil {
		return err
	}
	return expect(found, []string{content})
}
