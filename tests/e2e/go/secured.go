package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	pulsarlog "github.com/apache/pulsar-client-go/pulsar/log"
)

const content = "hello"

// What a line of the input says, with tabs between. An empty token: the client proves nothing.
type order struct {
	what, topic, token string
	patience           time.Duration
}

// Does one thing for each line of its input, and prints a JSON line with what went wrong.
func secured(url string, authorityFile string) {
	held := map[string]pulsar.Producer{}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		parts := strings.Split(lines.Text(), "\t")
		seconds, _ := strconv.Atoi(parts[3])
		one := order{parts[0], parts[1], parts[2], time.Duration(seconds) * time.Second}
		line := map[string]string{"error": ""}
		if err := securely(url, authorityFile, held, one); err != nil {
			line["error"] = err.Error()
		}
		print(line)
	}
}

func securely(
	url string, authorityFile string, held map[string]pulsar.Producer, one order,
) error {
	if one.what == "send" {
		return sendTo(held[one.topic])
	}
	client, err := securedClient(url, authorityFile, one)
	if err != nil {
		return err
	}
	switch one.what {
	case "produce":
		defer client.Close()
		_, err = sendFirst(client, one)
	case "consume":
		defer client.Close()
		err = consumeOne(client, one.topic)
	case "hold":
		held[one.topic], err = sendFirst(client, one)
	default:
		err = fmt.Errorf("what is %q?", one.what)
	}
	return err
}

func securedClient(url string, authorityFile string, one order) (pulsar.Client, error) {
	silent := slog.New(slog.NewTextHandler(io.Discard, nil))
	options := pulsar.ClientOptions{
		URL:                   url,
		TLSTrustCertsFilePath: authorityFile,
		TLSValidateHostname:   true,
		OperationTimeout:      one.patience,
		ConnectionTimeout:     one.patience,
		Logger:                pulsarlog.NewLoggerWithSlog(silent),
	}
	if one.token != "" {
		options.Authentication = pulsar.NewAuthenticationToken(one.token)
	}
	return pulsar.NewClient(options)
}

func sendFirst(client pulsar.Client, one order) (pulsar.Producer, error) {
	producer, err := client.CreateProducer(
		pulsar.ProducerOptions{Topic: one.topic, SendTimeout: one.patience})
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
