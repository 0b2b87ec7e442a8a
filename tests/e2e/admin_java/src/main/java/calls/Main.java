package calls;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.lang.reflect.Type;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;
import java.util.Optional;
import java.util.TreeSet;
import java.util.concurrent.CompletableFuture;
import org.apache.pulsar.client.admin.PulsarAdmin;
import org.apache.pulsar.client.admin.PulsarAdminException;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.impl.MessageIdImpl;
import org.apache.pulsar.common.util.ObjectMapperFactory;

/**
 * Calls a method of the admin library for each line of its input: {@code part.method}, then its
 * arguments, separated by tabs. {@code part.method#Type} is the overload whose last parameter is of
 * that type. Answers with {@code ok}, or the exception and its status, a tab, and the value as JSON.
 * Without arguments a line {@code methods} is answered with all there are.
 */
public final class Main {
    private final PulsarAdmin admin;

    private Main(PulsarAdmin admin) {
        this.admin = admin;
    }

    /**
     * @param arguments the admin URL
     */
    public static void main(String[] arguments) throws Exception {
        var admin = PulsarAdmin.builder().serviceHttpUrl(arguments[0]).build();
        var calls = new Main(admin);
        var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = lines.readLine()) != null; ) {
            String answer;
            try {
                answer = calls.answer(line.split("\t"));
            } catch (Throwable error) {
                answer = "cannot call\t" + error;
            }
            System.out.println(answer.replace("\n", "\\n").replace("\r", ""));
            System.out.flush();
        }
        // The library has threads that would keep this process alive.
        System.exit(0);
    }

    private String answer(String[] words) throws Exception {
        if (words[0].equals("methods")) {
            return "ok\t" + String.join(" ", methods());
        }
        String[] names = words[0].split("[.#]");
        Object part = PulsarAdmin.class.getMethod(names[0]).invoke(admin);
        String[] texts = Arrays.copyOfRange(words, 1, words.length);
        String lastType = names.length > 2 ? names[2] : "";
        for (Method method : named(PulsarAdmin.class.getMethod(names[0]).getReturnType(), names[1])) {
            Type[] types = method.getGenericParameterTypes();
            Class<?>[] classes = method.getParameterTypes();
            if (types.length != texts.length
                    || !lastType.isEmpty()
                            && !classes[classes.length - 1].getSimpleName().equals(lastType)) {
                continue;
            }
            Object[] values = new Object[texts.length];
            try {
                for (int i = 0; i < values.length; i++) {
                    values[i] = value(texts[i], classes[i], types[i]);
                }
            } catch (Exception ofAnotherType) {
                continue;
            }
            return outcome(method, part, values);
        }
        return "cannot call\tthere is no such method with such arguments";
    }

    private static String outcome(Method method, Object part, Object[] values) throws Exception {
        try {
            Object returned = method.invoke(part, values);
            if (returned instanceof CompletableFuture<?> coming) {
                returned = coming.join();
            }
            return "ok\t" + shown(returned);
        } catch (InvocationTargetException error) {
            if (error.getCause() instanceof PulsarAdminException refused) {
                return refused.getClass().getSimpleName() + "\t" + refused.getHttpError();
            }
            throw error;
        }
    }

    private static String shown(Object returned) {
        try {
            if (returned instanceof List<?> many && !many.isEmpty() && many.get(0) instanceof Message) {
                return many.stream().map(each -> shown(each)).toList().toString();
            }
            if (returned instanceof Message<?> message) {
                return new String(message.getData(), StandardCharsets.UTF_8) + message.getProperties();
            }
            return ObjectMapperFactory.getMapper().getObjectMapper().writeValueAsString(returned);
        } catch (Exception notJson) {
            return String.valueOf(returned);
        }
    }

    private static Method[] named(Class<?> part, String name) {
        return Arrays.stream(part.getMethods())
                .filter(method -> method.getName().equals(name))
                .sorted(Comparator.comparing(Method::toGenericString))
                .toArray(Method[]::new);
    }

    private static TreeSet<String> methods() {
        var found = new TreeSet<String>();
        for (Method part : PulsarAdmin.class.getMethods()) {
            if (part.getParameterCount() > 0 || part.isAnnotationPresent(Deprecated.class)
                    || !part.getReturnType().getName().startsWith("org.apache.pulsar.client.admin.")
                    || Modifier.isStatic(part.getModifiers())) {
                continue;
            }
            for (Method method : part.getReturnType().getMethods()) {
                if (!method.getName().endsWith("Async")
                        && !Modifier.isStatic(method.getModifiers())
                        && !method.isAnnotationPresent(Deprecated.class)) {
                    found.add(part.getName() + "." + method.getName());
                }
            }
        }
        return found;
    }

    @SuppressWarnings({"unchecked", "rawtypes"})
    private static Object value(String text, Class<?> type, Type generic) throws Exception {
        if (text.equals("null") && !type.isPrimitive()) {
            return null;
        }
        if (type == Optional.class) {
            return Optional.empty();
        }
        if (type == String.class) {
            return text;
        }
        if (type == boolean.class || type == Boolean.class) {
            if (!text.equals("true") && !text.equals("false")) {
                throw new IllegalArgumentException(text);
            }
            return Boolean.valueOf(text);
        }
        if (type == int.class || type == Integer.class) {
            return Integer.valueOf(text);
        }
        if (type == long.class || type == Long.class) {
            return Long.valueOf(text);
        }
        if (type.isEnum()) {
            return Enum.valueOf((Class<Enum>) type, text);
        }
        if (type == MessageId.class) {
            return messageId(text);
        }
        var mapper = ObjectMapperFactory.getMapper().getObjectMapper();
        return mapper.readValue(text, mapper.constructType(generic));
    }

    private static MessageId messageId(String text) {
        if (text.equals("earliest")) {
            return MessageId.earliest;
        }
        if (text.equals("latest")) {
            return MessageId.latest;
        }
        String[] numbers = text.split(":");
        return new MessageIdImpl(Long.parseLong(numbers[0]), Long.parseLong(numbers[1]), -1);
    }
}
